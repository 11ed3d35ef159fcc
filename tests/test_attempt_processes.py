"""Processes and locks as `run` sees them: what a child leaves, what stops us, who else is here."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import AGENT, BLOCKER, DIFF, ROOT_COMMAND, SCORER, Job, clean_environment, until
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable

# A daemon in a session of its own rewrites files for ever; its parent waits until it has begun.
DAEMON: Final = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for path in {paths}:
                with open(path, "w") as file:
                    file.write({text!r})
            time.sleep(0.001)
    os._exit(0)
while not all(os.path.exists(path) for path in {paths}):
    time.sleep(0.001)
"""


def running(token: str) -> list[str]:
    """Return the command lines of the living processes that carry a token."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if token.encode() in line:
            found.append(line.replace(b"\0", b" ").decode())
    return found


def test_a_background_child_keeps_neither_agent_nor_scorer_waiting(job: Job, token: str) -> None:
    """`sleep 3600 & echo done`: the child's exit ends the step, the rest is killed and counted."""
    sleeper = f"sleep 3600 {token} & echo done"
    agent = job.agent(AGENT + f"import os\nos.system({sleeper!r})\n")
    scorer = job.scorer(text=SCORER + f"os.system({sleeper!r})\n")
    assert job.run("--agent", agent, scorer=scorer).stdout == "accept\n"
    cleared = [item for item in job.log if item["event"] == "processes_cleared"]
    assert [(item["after"], item["found"]) for item in cleared] == [("agent", 1), ("scorer", 1)]
    assert running(token) == []


def test_a_detached_daemon_is_dead_before_sealing_and_before_reading(job: Job, token: str) -> None:
    """One rewrites score, source and diff every millisecond, another the scorer's own score."""
    paths = ["score.json", "app.py", "change.diff"]
    agent = job.agent(DAEMON.format(paths=paths, text=DIFF), token)
    last = "os.replace(os.environ['SCORE_FILE'] + '.new', os.environ['SCORE_FILE'])\n"
    passing = SCORER.replace('os.environ["SCORE_FILE"]', 'os.environ["SCORE_FILE"] + ".new"')
    daemon = DAEMON.format(paths='[os.environ["SCORE_FILE"] + ".own"]', text="{}")
    scorer = job.scorer("pass", token, text=daemon + passing + last)
    flags = ("--agent", agent, "--score-path", "score.json")
    assert job.run(*flags, scorer=scorer).stdout == "accept\n"
    cleared = [item["found"] for item in job.log if item["event"] == "processes_cleared"]
    assert all(found >= 1 for found in cleared)
    assert running(token) == []
    assert not (job.workspace / "score.json").exists()
    assert job.judged(job.last) == "accept"


def test_many_that_ignore_their_end_are_all_killed(job: Job, token: str) -> None:
    """A hundred processes in sessions of their own, deaf to TERM, forking as they may."""
    text = AGENT + (
        "import os, signal, time\n"
        "for _ in range(50):\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        os.setsid()\n"
        "        os.fork()\n"
        "        time.sleep(600)\n"
    )
    assert job.run("--agent", job.agent(text, token)).stdout == "accept\n"
    cleared = next(item for item in job.log if item["event"] == "processes_cleared")
    assert cleared["found"] >= 50
    assert running(token) == []


def test_dying_orphans_do_not_take_the_scorers_status(job: Job) -> None:
    """With orphans to reap at the same moment, 7 stays 7: a pass with it is no score."""
    text = SCORER + (
        "for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork():\n            os._exit(0)\n"
        "        os._exit(3)\n"
        "os._exit(7)\n"
    )
    assert job.run(scorer=job.scorer(text=text)).stdout == "reject: missing_receipt\n"
    assert (job.of("scorer_exited")["code"], job.of("scorer_exited")["signal"]) == (7, None)


@pytest.mark.parametrize(
    ("who", "number", "status", "line"),
    [
        ("agent", signal.SIGTERM, 1, "reject: attempt_state\n"),
        ("scorer after agent", signal.SIGINT, 1, "reject: attempt_state\n"),
        ("scorer", signal.SIGTERM, 1, "reject: attempt_state\n"),
        ("scorer", signal.SIGHUP, 1, "reject: attempt_state\n"),
    ],
)
def test_a_signal_to_the_runner_ends_the_attempt_aborted(
    job: Job, token: str, who: str, number: int, status: int, line: str
) -> None:
    """Children are stopped, and deaf ones killed; no 75 where a child could have sent it."""
    mark = job.directory / "mark"
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + BLOCKER
    flags = ["--grace", "0.2"]
    if who != "scorer":
        agent = job.agent(deaf if who == "agent" else AGENT, token, str(mark))
        flags += ["--agent", agent]
    scorer = job.scorer(token, str(mark), text=deaf)
    runner = job.start(*job.run_words(*flags, scorer=scorer))
    until(mark.exists)
    runner.send_signal(number)
    out, err = runner.communicate(timeout=60)
    assert (runner.returncode, out) == (status, line)
    assert f"signal {number:d}" in err
    assert job.events[-1] == "attempt_aborted"
    assert "rejected" not in job.events
    assert running(token) == []
    assert job.judged(job.last).startswith("reject: ")


def test_a_signal_before_the_start_starts_nothing(job: Job) -> None:
    """One that arrives during bootstrap lets that finish, then ends as 75 without a child."""
    words = job.run_words("--agent", job.agent())
    assert job.interrupt("SIGTERM", "open", "job-log.jsonl", 3, *words) == 75
    assert job.events[-2:] == ["attempt_started", "attempt_aborted"]
    assert (job.workspace / "app.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("name", ["score", "receipt.json", "decision.json"])
def test_a_signal_after_the_score_was_read_waits_for_the_decision(job: Job, name: str) -> None:
    """Once there is a verdict it becomes durable: an interruption cannot buy another."""
    assert job.interrupt("SIGTERM", "open", name, 1, *job.run_words()) == 0
    assert job.events[-1] == "accepted"
    assert job.judged(job.last) == "accept"


@needs("pid-namespace")
def test_the_runner_as_pid_1_accepts_and_proves_an_empty_namespace(job: Job) -> None:
    """As a container's first process it reaps what is left, and keeps the scorer's status."""
    orphans = "import os\nfor _ in range(100):\n    if os.fork() == 0:\n        os._exit(9)\n"
    scorer = job.scorer(text=SCORER + orphans)
    runner = job.start(*job.run_words(scorer=scorer), before=IN_NAMESPACE)
    out, _ = runner.communicate(timeout=60)
    assert (runner.returncode, out) == (0, "accept\n")


@needs("pid-namespace")
@pytest.mark.parametrize("who", ["agent", "scorer"])
def test_the_runner_as_pid_1_heeds_a_signal(job: Job, who: str) -> None:
    """PID 1 has no default handlers: ours stop the child and record the end."""
    mark = job.directory / "mark"
    flags = ["--agent", job.agent(BLOCKER, str(mark))] if who == "agent" else []
    scorer = job.scorer(str(mark), text=BLOCKER)
    runner = job.start(*job.run_words(*flags, scorer=scorer), before=IN_NAMESPACE)
    until(mark.exists)
    children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    out, _ = runner.communicate(timeout=60)
    assert (runner.returncode, out) == (1, "reject: attempt_state\n")
    assert job.events[-1] == "attempt_aborted"


IN_NAMESPACE: Final = ("unshare", "--pid", "--fork", "--mount-proc")


def test_endless_output_is_kept_to_a_cap(job: Job) -> None:
    """40 MB from each, without a newline: the logs hold 16 MiB, the record says how much it was."""
    flood = "import sys\nfor _ in range(40):\n    sys.stdout.write('y' * 1_000_000)\n"
    scorer = job.scorer(text=SCORER + flood)
    assert job.run("--agent", job.agent(AGENT + flood), scorer=scorer).stdout == "accept\n"
    for role in ("agent", "scorer"):
        exited = job.of(f"{role}_exited")
        assert (exited["output_bytes"], exited["truncated"]) == (40_000_000, True)
        assert (job.attempts[0] / f"{role}.log").stat().st_size == 16 * 1024 * 1024


def test_a_long_prompt_travels_by_file(job: Job) -> None:
    """140 kB are too long for an argument or a variable (E2BIG), and whole in the file."""
    job.prompt.write_text("x" * 140_000)
    text = "import os\nassert len(open(os.environ['PROMPT_FILE']).read()) == 140_000\n"
    agent = job.agent(text + AGENT)
    assert job.run("--agent", agent, scorer=job.scorer(text=text + SCORER)).stdout == "accept\n"


def test_a_word_too_long_for_the_kernel_is_refused(job: Job) -> None:
    """An argument of 140 kB cannot be passed to any program: 78, and the attempt is closed."""
    done = job.run("--agent", f"{job.agent()} {'x' * 100_000}")
    assert done.stdout == "accept\n"
    job.diff.write_text(DIFF)
    config = job.script("job.toml", f'[scorer]\nscorer = ["/bin/true", "{"x" * 140_000}"]\n')
    words = job.run_words("--config", str(config))
    done = job.command(*words[: words.index("--")])
    assert (done.returncode, done.stdout) == (78, "")
    assert job.events[-1] == "attempt_aborted"


def test_a_lock_file_that_was_left_behind_means_nothing(job: Job) -> None:
    """Whatever a lock file says, of pid 1, of a dead pid: only the kernel's lock counts."""
    words = ("bootstrap", "--model", "model-a")
    assert job.command(*words).returncode == 0
    for content in ("", "1\n", "99999999\n", "\0garbage\xff" * 100):
        (job.state / "workspace.lock").write_text(content)
        assert job.command(*words).returncode == 0
        assert (job.state / "workspace.lock").read_text() == content


def make_link(path: Path) -> None:
    """Leave a link where the lock was."""
    path.symlink_to("elsewhere")


REPLACED: Final[dict[str, Callable[[Path], object]]] = {
    "link": make_link,
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
}


def test_a_lock_path_of_another_kind_is_an_integrity_refusal(job: Job) -> None:
    """The lock is opened without following or waiting: anything but our file is 77."""
    assert job.command("bootstrap", "--model", "model-a").returncode == 0
    before = job.events
    for kind, replace in REPLACED.items():
        path = job.state / "workspace.lock"
        path.rename(path.with_name(f"before-{kind}"))
        replace(path)
        done = job.run()
        assert (done.returncode, done.stdout, job.events) == (77, "", before), kind


def test_a_held_workspace_is_waited_for_or_left_alone(job: Job) -> None:
    """A second runner starts nothing: 75 at once, or heeds a signal while it waits."""
    mark = job.directory / "mark"
    holder = job.start(*job.run_words(scorer=job.scorer(str(mark), text=BLOCKER)))
    until(mark.exists)
    before = job.events
    done = job.run()
    assert (done.returncode, done.stdout, job.events) == (75, "", before)
    assert f"process {holder.pid}" in done.stderr
    waiting = job.start(*job.run_words("--wait", "3000"))
    until(lambda: holds_open(waiting.pid, job.state / "workspace.lock"))
    waiting.terminate()
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, job.events) == (75, "", before)
    assert "signal 15" in err
    holder.kill()
    holder.communicate()
    assert job.run("--wait", "60").stdout == "accept\n"


def holds_open(pid: int, path: Path) -> bool:
    """Tell whether a process has a file open."""
    for name in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if name.readlink() == path:
                return True
        except OSError:
            continue
    return False


def test_a_runner_whose_lock_was_unlinked_is_fenced_off(job: Job) -> None:
    """The next one locks a new file, closes the first one's attempt and stops it: one accept."""
    mark = job.directory / "mark"
    slow = job.scorer(str(mark), text=SCORER + BLOCKER)
    first = job.start(*job.run_words(scorer=["/usr/bin/env", *slow]))
    until(mark.exists)
    started = job.last
    (job.state / "workspace.lock").unlink()
    assert job.run().stdout == "accept\n"
    out, _ = first.communicate(timeout=60)
    assert (first.returncode, out) == (-9, "")
    assert job.of("attempt_aborted")["attempt_id"] == started
    assert job.judged(started).startswith("reject: ")
    assert job.judged(job.last) == "accept"


def test_runners_at_once_take_turns(job: Job) -> None:
    """Five started together each make one whole attempt, and the log's chain holds."""
    words = job.run_words("--wait", "100")
    runners = [job.start(*words) for _ in range(5)]
    ends = [(runner.communicate(timeout=100)[0], runner.returncode) for runner in runners]
    assert ends == [("accept\n", 0)] * 5
    assert [event for event in job.events if event in ("attempt_started", "accepted")] == [
        "attempt_started",
        "accepted",
    ] * 5
    assert job.command("log", "--verify").returncode == 0
    assert len({attempt.name for attempt in job.attempts}) == 5


def test_the_runner_refuses_to_inherit_children(job: Job) -> None:
    """Handed over by a shell with a background job, clearing would kill that: refused, 78."""
    words = [*ROOT_COMMAND, "run", *job.arguments(), *job.run_words()[1:]]
    done = subprocess.run(
        ["sh", "-c", 'sleep 600 >/dev/null 2>&1 & echo $! >&2; exec "$@"', "sh", *words],
        check=False,
        capture_output=True,
        cwd=job.directory,
        env=clean_environment(),
        text=True,
        timeout=100,
    )
    os.kill(int(done.stderr.split()[0]), signal.SIGKILL)
    assert (done.returncode, done.stdout) == (78, "")
    assert not job.state_root.exists()
