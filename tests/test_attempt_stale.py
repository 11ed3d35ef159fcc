"""Stale and foreign results: nothing that lay there before, or belongs to another, ever counts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.files import open_directory
from bootstrap.joblog import JobLog, verify_all
from tests.jobs import AGENT, BLOCKER, DIFF, ROOT_COMMAND, Job, clean_environment, until
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

IDLE: Final = "import sys\nraise SystemExit(int(sys.argv[-1]))\n"
JUNIT: Final = (
    '<testsuite tests="1" failures="0" errors="0"><testcase classname="a" name="b"/></testsuite>'
)
PLACES: Final = ("score.json", "receipt.json", "junit.xml", "out/score", "score", "attempts")
# What each record of a run is about, in order: a kill before the Nth leaves the N-1 before it.
RECORDS: Final = (
    "minted",
    "wiped",
    "frozen",
    "started",
    "agent exited",
    "cleared",
    "wiped again",
    "sealed",
    "scorer exited",
    "cleared again",
    "receipt",
    "accepted",
)


def plant(job: Job) -> None:
    """Leave a passing receipt, score and JUnit file at every place, newest of all by far."""
    receipt = {
        "diff_sha256": sha256(DIFF.encode()).hexdigest(),
        "prompt_sha256": sha256(job.prompt.read_bytes()).hexdigest(),
        "model_id": "model-a",
        "workspace_generation": "gen-yesterday",
        "verdict": "pass",
        "reasons": ["the tests pass"],
    }
    score = {"verdict": "pass", "reasons": ["the tests pass"]}
    for place in PLACES:
        directory = job.workspace / place
        directory.mkdir(parents=True)
        (directory / "receipt.json").write_text(json.dumps(receipt))
        (directory / "score.json").write_text(json.dumps(score))
        (directory / "junit.xml").write_text(JUNIT)
        (directory / "score").write_text(json.dumps(score))
        for file in directory.iterdir():
            os.utime(file, (4_070_908_800, 4_070_908_800))  # the year 2099


def as_flags(places: tuple[str, ...]) -> list[str]:
    """Return the flags that name score paths."""
    return [word for place in places for word in ("--score-path", place)]


@pytest.mark.parametrize(("form", "code"), [("score-json", 0), ("junit", 0), ("junit", 5)])
def test_planted_results_and_an_idle_scorer_are_no_receipt(job: Job, form: str, code: int) -> None:
    """A scorer that exits 0 (or 5, pytest's `no tests`) and writes nothing has scored nothing."""
    plant(job)
    scorer = job.scorer(str(code), text=IDLE)
    done = job.run(*as_flags(PLACES), "--score-format", form, scorer=scorer)
    assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")
    assert not any((job.workspace / place).exists() for place in PLACES)
    assert sorted(path.name for path in job.attempts[0].iterdir()) == [
        "attempt.json",
        "decision.json",
        "patch.diff",
        "prompt",
        "scorer.log",
    ]


def test_planted_results_outside_the_score_paths_are_not_looked_at(job: Job) -> None:
    """Even where nothing is wiped, a score in the workspace is never found: nothing searches."""
    plant(job)
    scorer = job.scorer("0", text=IDLE)
    assert job.run(scorer=scorer).stdout == "reject: missing_receipt\n"
    assert (job.workspace / "score.json" / "score.json").exists()


def test_a_score_planted_by_the_agent_is_wiped_before_the_scorer(job: Job) -> None:
    """What the agent leaves at a score path is gone before the scorer, and the log tells of it."""
    text = AGENT + "pathlib.Path('score.json').write_text('planted')\n"
    scorer = job.scorer(
        text="import sys, os\nraise SystemExit(os.path.exists(sys.argv[1] + '/score.json'))"
    )
    flags = ("--score-path", "score.json", "--scorer-reads-workspace", "--agent", job.agent(text))
    job.run(*flags, scorer=[*scorer[:-1], "{workspace}"])
    assert job.of("scorer_exited")["code"] == 0
    assert [item["found"] for item in job.log if item["event"] == "score_paths_wiped"] == [
        ["change.diff"],  # yesterday's
        ["score.json"],
    ]


BEFORE_LINE: Final = ("open", "job-log.jsonl")
BEFORE_HEAD: Final = ("os.rename", "job-log.head")


@pytest.mark.parametrize(
    ("number", "step"),
    [(number, BEFORE_LINE) for number in range(1, len(RECORDS) + 1)]
    + [(number, BEFORE_HEAD) for number in (1, 4, 8, 12)],
)
def test_a_runner_killed_at_any_record_is_closed_by_the_next(
    job: Job, number: int, step: tuple[str, str]
) -> None:
    """Killed before a line or between line and head: no accept, no lost record, a clean start."""
    words = job.run_words("--agent", job.agent(), "--score-path", "score.json")
    assert job.interrupt("SIGKILL", *step, number, *words) == -9
    before = job.events if job.has_log else []
    assert len(before) == (number if step == BEFORE_HEAD else number - 1)
    killed = [job.last] if "attempt_started" in before else []
    decided = before[-1:] == ["accepted"]  # its line is durable: only the head was missing
    assert all((job.judged(attempt) == "accept") is decided for attempt in killed)
    assert job.run("--agent", job.agent(), "--score-path", "score.json").stdout == "accept\n"
    assert job.events[: len(before)] == before
    aborted = [item["attempt_id"] for item in job.log if item["event"] == "attempt_aborted"]
    assert aborted == ([] if decided else killed)
    assert job.last not in killed
    with open_directory(job.state) as directory:
        assert len(list(verify_all(directory))) == len(job.log)
    kept = [attempt.name for attempt in job.attempts]
    assert {job.last, *killed} <= set(kept)
    for attempt in kept:
        assert job.judged(attempt).startswith("reject: ") is (attempt != job.last)
    if aborted:
        assert not list((job.directory / "scratch").iterdir())


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ("os.rename", "attempt.json"),
        ("open", "score"),
        ("open", "receipt.json"),
        ("open", "decision.json"),
    ],
)
def test_a_runner_killed_at_any_file_leaves_what_no_gate_accepts(
    job: Job, event: str, name: str
) -> None:
    """The attempt's directory, its score, its receipt: what a kill leaves is kept, and no pass."""
    assert job.interrupt("SIGKILL", event, name, 1, *job.run_words()) == -9
    (killed,) = job.attempts
    found = job.gate(killed.name)
    assert (
        found
        == {
            "attempt.json": "77",
            "score": "reject: missing_receipt",
            "receipt.json": "reject: missing_receipt",
            "decision.json": "accept",  # the closing record is the decision; the file tells of it
        }[name]
    )
    if name == "decision.json":
        return
    before = sorted(killed.iterdir())
    assert job.run().stdout == "accept\n"
    assert job.last != killed.name
    assert sorted(killed.iterdir()) == before
    assert job.gate(killed.name) == found


def test_a_receipt_that_was_written_and_not_closed_is_rejected(job: Job) -> None:
    """A whole, matching, passing receipt without a closing record is an attempt that is open."""
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 10, *job.run_words()) == -9
    assert (job.attempts[0] / "receipt.json").exists()
    assert job.events[-1] == "receipt_written"
    assert job.gate(job.last) == "reject: attempt_state"
    shown = job.command("explain", job.last)
    assert (shown.returncode, "no closing record" in shown.stdout) == (0, True)


def copy_receipt(job: Job, source: str, target: str) -> None:
    """Put one attempt's receipt in place of another's."""
    attempts = job.state / "attempts"
    (attempts / target / "receipt.json").unlink(missing_ok=True)
    shutil.copy(attempts / source / "receipt.json", attempts / target / "receipt.json")


@pytest.mark.parametrize(
    ("changed", "field"),
    [("nothing", ""), ("model", "model_id"), ("prompt", "prompt_sha256"), ("diff", "diff_sha256")],
)
def test_a_receipt_of_another_attempt_names_what_differs(
    job: Job, changed: str, field: str
) -> None:
    """Whatever else is the same, generation and attempt id never are; what differs is named."""
    assert job.run().stdout == "accept\n"
    first = job.last
    if changed == "prompt":
        job.prompt.write_text("Make x three.\n")
    if changed == "diff":
        job.diff.write_text(DIFF.replace("+x = 2", "+x = 3"))
    assert job.run(model="model-b" if changed == "model" else "model-a").stdout == "accept\n"
    copy_receipt(job, first, job.last)
    own = ["workspace_generation", "attempt_id", "job_log"]
    order = ["diff_sha256", "prompt_sha256", "model_id", *own]
    expected = [name for name in order if name in {field, *own}]
    assert job.judged(job.last) == f"reject: {','.join(expected)}"
    copy_receipt(job, job.last, first)  # the newest receipt is no help to the older attempt
    assert "attempt_state" in job.judged(first)


def test_within_one_generation_a_receipt_still_belongs_to_its_attempt(job: Job) -> None:
    """After an aborted attempt of the same generation only the attempt id tells them apart."""
    prompt = ("--prompt", str(job.prompt))
    assert job.command("bootstrap", "--model", "model-a", *prompt).returncode == 0
    words = ["attempt", *job.attempt_flags(), "--", *job.scorer()]
    assert job.interrupt("SIGKILL", "open", "receipt.json", 1, *words) == -9
    aborted = job.last
    assert job.command(*words).stdout == "accept\n"
    copy_receipt(job, job.last, aborted)
    assert job.judged(aborted) == "reject: attempt_id,job_log,attempt_state"
    shutil.rmtree(job.state / "attempts" / aborted)
    shutil.copytree(job.state / "attempts" / job.last, job.state / "attempts" / aborted)
    assert job.gate(aborted, "--consume") == "77"  # else one attempt could be consumed twice
    assert job.gate(job.last, "--consume") == "accept"


def test_no_decision_reads_a_time(job: Job) -> None:
    """A log whose clock runs back, and files of the year 2099, change nothing."""
    assert job.run().stdout == "accept\n"
    with open_directory(job.state) as directory:
        JobLog(directory, clock=lambda: 4e9).append("noted")
        JobLog(directory, clock=lambda: 0.0).append("noted")
    for path in (job.diff, job.prompt, *job.attempts[0].iterdir(), *job.state.iterdir()):
        os.utime(path, (4_070_908_800, 4_070_908_800))
    assert job.judged(job.last) == "accept"
    first = job.last
    assert job.run().stdout == "accept\n"
    assert job.judged(first) == "reject: attempt_state"
    assert job.judged(job.last) == "accept"


def test_the_next_model_is_a_new_attempt_of_a_new_generation(job: Job) -> None:
    """The first model is unavailable, the second runs: own ids, own model, both in the log."""
    scorer = job.scorer(text="raise SystemExit(75)\n")
    environ = {"MODEL_ID": "model-of-the-environment"}
    done = job.run("--scorer-may-be-unavailable", scorer=scorer, environ=environ)
    assert (done.returncode, done.stdout) == (75, "")
    assert job.run(model="model-b", environ={"MODEL_ID": "edited"}).stdout == "accept\n"
    started = [item for item in job.log if item["event"] == "attempt_started"]
    assert [item["model_id"] for item in started] == ["model-a", "model-b"]
    assert len({item["attempt_id"] for item in started}) == 2
    assert len({item["generation"] for item in started}) == 2
    ids = [str(item["attempt_id"]) for item in started]
    assert [job.judged(attempt) for attempt in ids] == ["reject: missing_receipt", "accept"]


def test_processes_of_a_killed_run_are_stopped_by_the_next(job: Job) -> None:
    """The agent and its daemon outlive a killed runner, and not the next one's start."""
    mark = job.directory / "agent-runs"
    text = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    open('daemon', 'w').write(str(os.getpid()))\n"
        + BLOCKER
    )
    agent = job.agent(text, str(mark))
    runner = job.start(*job.run_words("--agent", agent))
    until(mark.exists)
    until((job.workspace / "daemon").exists)
    until((job.workspace / "daemon").read_text)
    runner.kill()
    runner.communicate()
    pid = int((job.workspace / "daemon").read_text())
    assert is_alive(pid)
    refused = job.run("--strict")
    assert (refused.returncode, refused.stdout) == (77, "")
    assert job.run("--agent", job.agent()).stdout == "accept\n"
    assert not is_alive(pid)
    aborted = job.of("attempt_aborted")
    assert aborted["proof"] == "searched, not proved"
    assert not list((job.directory / "scratch").iterdir())


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True)
    return done.stdout.strip()[:1] not in (b"", b"Z")


def test_trash_of_a_killed_wipe_is_removed(job: Job) -> None:
    """What a crash left beside a score path is gone before the agent, whatever it is."""
    (job.workspace / "out").mkdir()
    trash = job.workspace / "out" / f".attempt-trash-{'0' * 32}"
    trash.mkdir()
    (trash / "score").write_text("half of a score")
    assert job.run("--score-path", "out/score").stdout == "accept\n"
    assert not trash.exists()


FULL: Final = """\
set -eu
mount -t tmpfs -o size={size} tmpfs {state}
chmod 700 {state}
if [ "{fill}" = before ]; then head -c {size} /dev/zero > {state}/filler || true; fi
code=0
"$@" > {state}/../out 2> {state}/../err || code=$?
rm -f {state}/filler
cp -a {state} {state}.kept
exit $code
"""


def run_on_a_small_disk(job: Job, *words: str, size: str, fill: str = "never") -> int:
    """Run a command with its state on a tiny filesystem; leave a copy of the state afterwards."""
    job.state_root.mkdir()
    script = job.script("full.sh", FULL.format(size=size, state=job.state_root, fill=fill))
    name, *arguments = words
    command = [*ROOT_COMMAND, name, *job.arguments(), *arguments]
    done = subprocess.run(
        ["unshare", "--mount", "sh", script, *command],
        check=False,
        cwd=job.directory,
        env=clean_environment(),
        timeout=100,
    )
    job.state_root.rmdir()
    job.state_root.with_name("state.kept").rename(job.state_root)
    return done.returncode


FILLING: Final = """\
import glob
(state,) = glob.glob({state!r})
try:
    with open(state + "/filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
except OSError:
    pass
"""


@needs("root", "mount")
@pytest.mark.parametrize("who", ["agent", "scorer"])
def test_a_disk_that_fills_during_the_attempt_never_accepts(job: Job, who: str) -> None:
    """Our own write fails after a child began: 77, nothing printed, and no accept later."""
    filling = FILLING.format(state=str(job.state_root))
    agent = job.agent(AGENT + (filling if who == "agent" else ""))
    scorer = job.scorer()
    if who == "scorer":
        script = job.directory / "scorer.py"
        script.write_text(script.read_text() + filling)
    words = job.run_words("--agent", agent, scorer=scorer)
    assert run_on_a_small_disk(job, *words, size="256k") == 77
    assert (job.directory / "out").read_text() == ""
    assert "No space left on device" in (job.directory / "err").read_text()
    assert job.judged(job.last).startswith("reject: ")
    assert "accepted" not in job.events
    assert job.run().stdout == "accept\n"
    assert job.events.count("attempt_aborted") == 1


@needs("root", "mount")
def test_a_disk_that_is_full_from_the_start_is_no_attempt(job: Job) -> None:
    """Before the agent's first instruction a full disk is 75: start again."""
    assert run_on_a_small_disk(job, *job.run_words(), size="64k", fill="before") == 75
    assert (job.directory / "out").read_text() == ""


@needs("root", "mount")
@pytest.mark.parametrize("pages", [5, 11, 15])
def test_a_disk_of_any_size_never_accepts_by_halves(job: Job, pages: int, tmp_path: Path) -> None:
    """Wherever the state's disk ends, the run is accepted whole or not at all."""
    size = f"{4 * pages}k"
    code = run_on_a_small_disk(job, *job.run_words("--agent", job.agent()), size=size)
    out = (tmp_path / "out").read_text()
    assert (code, out) in ((0, "accept\n"), (75, ""), (77, ""))
    if job.has_log and "attempt_started" in job.events:
        assert (job.judged(job.last) == "accept") is (job.events[-1] == "accepted")
    assert job.run("--agent", job.agent()).stdout == "accept\n"


def test_a_diff_over_the_limit_is_refused_before_it_is_read(job: Job) -> None:
    """A sparse diff of three gigabytes costs an agent nothing, and must cost us nothing."""
    with job.diff.open("r+b") as diff:
        diff.truncate(3 << 30)
    done = job.run()
    assert (done.returncode, done.stdout) == (1, "reject: diff_file\n"), done.stderr


def test_a_scorer_that_rewrites_who_the_attempt_is_is_found(job: Job) -> None:
    """Under none a scorer can point the live paths elsewhere; the runner remembers its own."""
    text = (
        "import json, os, pathlib, sys\n"
        "name = os.environ['ATTEMPT_ID']\n"
        "(file,) = pathlib.Path(sys.argv[2]).glob(f'*/attempts/{name}/attempt.json')\n"
        "frozen = json.loads(file.read_text())\n"
        "frozen['diff'] = {'path': str(file.parent / 'patch.diff'), 'inside': None}\n"
        "file.write_text(json.dumps(frozen))\n"
        "score = {'verdict': 'pass', 'reasons': ['because']}\n"
        "pathlib.Path(os.environ['SCORE_FILE']).write_text(json.dumps(score))\n"
    )
    done = job.run(scorer=job.scorer("pass", str(job.state_root), text=text))
    assert (done.returncode, done.stdout) == (77, ""), done.stderr
    assert "attempt.json" in done.stderr
