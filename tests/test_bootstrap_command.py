"""Bootstrap and attempt as two commands: what the first froze binds the second."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.jobs import AGENT, BLOCKER, DIFF, ROOT_COMMAND, until
from tests.machine import needs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from tests.jobs import Job


def bootstrap(job: Job, *flags: str, model: str = "model-a") -> dict[str, str]:
    """Bootstrap a job and return what it exports."""
    done = job.command("bootstrap", "--model", model, "--format", "json", *flags)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def attempt(
    job: Job,
    *flags: str,
    scorer: list[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Make one attempt under the generation in force."""
    words = [*job.attempt_flags(), *flags, "--", *(scorer or job.scorer())]
    return job.command("attempt", *words, environ=environ)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line that a command printed, or its status without one."""
    assert (done.returncode == 0) is (done.stdout == "accept\n")
    return done.stdout.strip() or str(done.returncode)


def test_two_commands_make_one_attempt(job: Job) -> None:
    """The generation, the model and the wiped paths are those of the bootstrap."""
    (job.workspace / "score.json").write_text("yesterday's")
    frozen = bootstrap(job, "--score-path", "score.json", "--prompt", str(job.prompt))
    assert not (job.workspace / "score.json").exists()
    assert job.events == ["generation_minted", "score_paths_wiped", "model_frozen"]
    (job.workspace / "score.json").write_text("planted since")
    assert said(attempt(job, environ=frozen)) == "accept"
    assert not (job.workspace / "score.json").exists()
    assert job.of("attempt_started")["generation"] == frozen["WORKSPACE_GEN"]
    assert job.of("accepted")["model_id"] == "model-a"
    assert job.judged(job.last) == "accept"


def test_a_generation_admits_one_decided_attempt(job: Job) -> None:
    """An accept or a reject uses it up; an attempt that was aborted does not."""
    bootstrap(job)
    unavailable = job.scorer(text="raise SystemExit(75)\n")
    assert said(attempt(job, "--scorer-may-be-unavailable", scorer=unavailable)) == "75"
    assert said(attempt(job, scorer=job.scorer("fail"))) == "reject: verdict"
    assert said(attempt(job)) == "reject: attempt_state"
    bootstrap(job)
    assert said(attempt(job)) == "accept"
    first = job.last
    assert said(attempt(job)) == "reject: attempt_state"
    assert (job.last, job.judged(first)) == (first, "accept")
    assert len(job.attempts) == 3


def test_attempt_needs_a_generation_in_force(job: Job) -> None:
    """Without a bootstrap, or with one that was killed, it is 78, and nothing is written."""
    assert said(attempt(job)) == "78"
    assert not job.state_root.exists()
    words = ["bootstrap", "--model", "model-a"]
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 3, *words) == -9
    assert json.loads((job.state / "generation.json").read_bytes())["status"] == "pending"
    before = job.events
    assert said(attempt(job)) == "78"
    assert job.events == before


def test_a_generation_of_elsewhere_is_not_in_force(job: Job) -> None:
    """Another boot, another machine, another directory at this path: bootstrap first, 78."""
    bootstrap(job)
    path = job.state / "generation.json"
    frozen = path.read_bytes()
    for field, value in (("boot_id", "another"), ("machine_id", "another"), ("workspace_inode", 1)):
        path.write_text(json.dumps(json.loads(frozen) | {field: value}))
        assert said(attempt(job)) == "78", field
    path.write_bytes(frozen)
    assert said(attempt(job)) == "accept"


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        ({"MODEL_ID": "model-b"}, "model_id"),
        ({"MODEL_ID": ""}, "model_id"),
        ({"WORKSPACE_GEN": "gen-yesterday"}, "workspace_generation"),
        ({"MODEL_ID": "x", "WORKSPACE_GEN": "y"}, "model_id,workspace_generation"),
    ],
)
def test_attempt_compares_what_its_environment_says(
    job: Job, environ: dict[str, str], fields: str
) -> None:
    """A difference is a recorded reject before anything starts; bootstrap ignores the old one."""
    assert bootstrap(job)["WORKSPACE_GEN"] != "gen-yesterday"
    assert said(attempt(job, environ=environ)) == f"reject: {fields}"
    assert job.of("rejected")["fields"] == fields.split(",")
    assert "attempt_started" not in job.events
    if len(environ) > 1:  # one case is enough: it was decided
        assert said(attempt(job)) == "reject: attempt_state"


def test_bootstrap_ignores_an_inherited_generation(job: Job) -> None:
    """$WORKSPACE_GEN of yesterday's job is neither taken over nor compared."""
    done = job.command("bootstrap", environ={"WORKSPACE_GEN": "gen-old", "MODEL_ID": "model-e"})
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert values["MODEL_ID"] == "model-e"
    assert values["WORKSPACE_GEN"] == job.of("generation_minted")["generation"]


def test_a_prompt_that_was_frozen_is_the_one_that_counts(job: Job) -> None:
    """Sealed at bootstrap: an edit before the attempt is seen, and never becomes the prompt."""
    bootstrap(job, "--prompt", str(job.prompt))
    frozen = job.prompt.read_text()
    job.prompt.write_text("Do something else.\n")
    assert said(attempt(job)) == "reject: prompt_sha256"
    assert (job.attempts[0] / "prompt").read_text() == frozen


def test_a_frozen_prompt_that_was_changed_holds_the_machine(job: Job) -> None:
    """The sealed copy in the state is compared with its digest before it is used."""
    bootstrap(job, "--prompt", str(job.prompt))
    sealed = job.state / "frozen" / "prompt"
    sealed.chmod(0o600)
    sealed.write_text("Do something else.\n")
    assert said(attempt(job)) == "77"


def config(job: Job, text: str = "") -> Path:
    """Write a job.toml that names the scorer."""
    scorer = json.dumps(job.scorer())
    return job.script("job.toml", f"[scorer]\nscorer = {scorer}\n{text}")


def test_a_scorer_and_config_that_were_frozen_are_compared(job: Job) -> None:
    """The scorer of bootstrap's config is used, compared, and its files are digested then."""
    named = ("--config", str(config(job)))
    bootstrap(job, *named)
    words = job.attempt_flags()
    assert said(job.command("attempt", *words, *named)) == "accept"
    bootstrap(job, *named)
    assert said(attempt(job, *named, scorer=job.scorer("fail"))) == "reject: scorer"
    bootstrap(job, *named)
    assert said(job.command("attempt", *words)) == "78"  # the config that was frozen, or none
    config(job, "# another\n")
    assert said(job.command("attempt", *words, *named)) == "78"
    config(job)
    script = job.directory / "scorer.py"
    script.write_text(script.read_text() + "#")
    assert said(job.command("attempt", *words, *named)) == "reject: scorer"


def test_an_agent_of_attempt_finds_no_diff_of_yesterday(job: Job) -> None:
    """Bootstrap could not know of the agent: the stale diff goes before the agent starts."""
    bootstrap(job)
    assert said(attempt(job, "--agent", job.agent(""))) == "reject: diff_file"
    assert "agent_exited" in job.events
    bootstrap(job)
    assert said(attempt(job, "--agent", job.agent(AGENT))) == "accept"


def test_a_score_path_over_an_input_of_attempt_is_refused(job: Job) -> None:
    """What bootstrap could not compare yet, attempt does: nothing of the operator's is wiped."""
    prompt = job.workspace / "in" / "prompt.md"
    prompt.parent.mkdir()
    prompt.write_text("Make x two.\n")
    bootstrap(job, "--score-path", "in")
    prompt.parent.mkdir()
    prompt.write_text("Make x two.\n")
    assert said(attempt(job, "--prompt", str(prompt))) == "78"
    assert prompt.exists()
    bootstrap(job, "--score-path", "change.diff")
    job.diff.write_text(DIFF)
    assert said(attempt(job)) == "78"
    assert job.diff.exists()


def test_the_frozen_values_are_printed_for_a_shell(job: Job) -> None:
    """Quoted where a shell would make something of them."""
    done = job.command("bootstrap", "--model", "provider/model-a:v1$x")
    assert done.stdout.startswith("MODEL_ID='provider/model-a:v1$x'\nWORKSPACE_GEN=gen-")


INNER: Final = """\
import json, os, subprocess, sys
print(os.environ["MODEL_ID"], os.environ["WORKSPACE_GEN"], flush=True)
raise SystemExit(subprocess.run(json.loads(sys.argv[1])).returncode)
"""


def supervised(job: Job, *command: str, before: tuple[str, ...] = ()) -> Any:
    """Start a bootstrap that supervises a command."""
    return job.start("bootstrap", "--model", "model-a", "--", *command, before=before)


def test_a_supervised_command_runs_an_attempt_inside(job: Job) -> None:
    """The lock is free again, the values are exported, and the command's status is returned."""
    words = job.attempt_flags()
    inner = [*ROOT_COMMAND, "attempt", *job.arguments(), *words, "--", *job.scorer()]
    script = str(job.script("job.py", INNER))
    runner = supervised(job, job.scorer()[0], "-I", script, json.dumps(inner))
    out, _ = runner.communicate(timeout=100)
    generation = job.of("generation_minted")["generation"]
    assert (runner.returncode, out) == (0, f"model-a {generation}\naccept\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 75"], 75),
        (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_a_supervised_commands_status_is_ours(job: Job, command: list[str], status: int) -> None:
    """Its own code, 128 + n for a signal: never a verdict, and nothing of ours is printed."""
    runner = supervised(job, *command)
    out, _ = runner.communicate(timeout=100)
    assert (runner.returncode, out) == (status, "")


@needs("pid-namespace")
def test_a_supervising_pid_1_forwards_a_signal(job: Job) -> None:
    """In a container the stop reaches the job's script, whose status is then returned."""
    mark = job.directory / "mark"
    script = job.script("block.py", BLOCKER)
    command = [job.scorer()[0], "-I", str(script), str(mark)]
    runner = supervised(job, *command, before=("unshare", "--pid", "--fork", "--mount-proc"))
    until(mark.exists)
    with open(f"/proc/{runner.pid}/task/{runner.pid}/children", encoding="ascii") as children:
        first = int(children.read().split()[0])
    os.kill(first, signal.SIGTERM)
    runner.communicate(timeout=60)
    assert runner.returncode == 128 + signal.SIGTERM


def test_a_bootstrap_that_fails_starts_no_command(job: Job) -> None:
    """A parent of a score path that is a link is 77, and the command never runs."""
    (job.workspace / "out").symlink_to(job.directory)
    mark = job.directory / "mark"
    words = ("--score-path", "out/scores", "--", "touch", str(mark))
    done = job.command("bootstrap", "--model", "model-a", *words)
    assert (done.returncode, done.stdout, mark.exists()) == (77, "", False)
    assert said(attempt(job)) == "78"
