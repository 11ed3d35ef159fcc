from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from pathlib import Path

LOUD = """\
import sys
print("::error::planted")
print("\\x1b[2Kaccept\\r::set-output name=verdict::accept")
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job."""
    return make_job(tmp_path)


def outputs_of(text: str) -> dict[str, str]:
    """Read a file of GitHub's outputs as its runner does: name, delimiter, value, delimiter."""
    lines, found = text.splitlines(), {}
    while lines:
        name, delimiter = lines.pop(0).split("<<")
        end = lines.index(delimiter)
        found[name] = "\n".join(lines[:end])
        del lines[: end + 1]
    return found


def github(job: Job) -> dict[str, str]:
    """Return the variables of a step of a workflow."""
    names = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")
    return {name: str(job.directory / name) for name in names}


@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_github_is_told_the_verdict(job: Job, verdict: str) -> None:
    """Verdict, attempt and receipt are outputs of the step; the summary is a table."""
    scorer = job.scorer("pass" if verdict == "accept" else "fail")
    job.run("--github", scorer=scorer, environ=github(job))
    outputs = outputs_of((job.directory / "GITHUB_OUTPUT").read_text())
    assert outputs == {
        "verdict": verdict,
        "attempt_id": job.last,
        "receipt_sha256": job.of("receipt_written")["receipt_sha256"],
    }
    assert job.last in (job.directory / "GITHUB_STEP_SUMMARY").read_text()


def test_attempt_tells_github_as_run_does(job: Job) -> None:
    """Two steps of a workflow, bootstrap and attempt, end in the same outputs."""
    assert job.command("bootstrap", "--model", "m").returncode == 0
    words = ("attempt", *job.attempt_flags(), "--github", "--", *job.scorer())
    assert job.command(*words, environ=github(job)).stdout == "accept\n"
    assert outputs_of((job.directory / "GITHUB_OUTPUT").read_text())["attempt_id"] == job.last


def test_an_earlier_attempt_is_never_told_for_this_one(job: Job) -> None:
    """A job that started no attempt has none, whatever the log holds."""
    assert job.run().returncode == 0
    (job.workspace / "out").symlink_to("/")
    done = job.run("--github", "--score-path", "out/score", environ=github(job))
    assert done.returncode == 77
    outputs = outputs_of((job.directory / "GITHUB_OUTPUT").read_text())
    assert outputs == {"verdict": "none", "attempt_id": "", "receipt_sha256": ""}


def test_github_outside_a_workflow_is_refused(job: Job) -> None:
    """A verdict that nobody reads is a mistake, found before anything starts."""
    assert job.run("--github").returncode == 78
    assert job.command("bootstrap", "--model", "m", "--format", "github").returncode == 78
    assert not job.has_log


def test_gitlab_is_told_by_a_dotenv_report(job: Job) -> None:
    """The report is replaced, never added to."""
    report = job.directory / "report.env"
    report.write_text("ATTEMPT_VERDICT=planted\n")
    job.run("--gitlab-dotenv", str(report))
    digest = job.of("receipt_written")["receipt_sha256"]
    assert report.read_text().splitlines() == [
        "ATTEMPT_VERDICT=accept",
        f"ATTEMPT_ID={job.last}",
        f"ATTEMPT_RECEIPT_SHA256={digest}",
    ]


def test_bootstrap_exports_to_the_environment_of_a_workflow(job: Job) -> None:
    """Later steps find the frozen values; standard output stays empty."""
    done = job.command("bootstrap", "--model", "m", "--format", "github", environ=github(job))
    assert (done.returncode, done.stdout) == (0, "")
    found = outputs_of((job.directory / "GITHUB_ENV").read_text())
    generation = json.loads((job.state / "generation.json").read_text())["generation"]
    assert found == {"MODEL_ID": "m", "WORKSPACE_GEN": generation}


def test_output_is_shown_only_when_asked_and_never_obeyed(job: Job) -> None:
    """Commands and escapes stand in no line's start, between tokens that nobody could know."""
    loud = [sys.executable, "-I", str(job.script("loud.py", LOUD))]
    assert "planted" not in job.run(scorer=loud).stderr
    shown = job.run("--echo", scorer=loud).stderr
    first = next(line for line in shown.splitlines() if line.startswith("::"))
    token = first.removeprefix("::stop-commands::")
    assert [line for line in shown.splitlines() if line.startswith("::")] == [first, f"::{token}::"]
    assert "scorer.log: ::error::planted" in shown
    assert "\x1b" not in shown
    assert "\\x1b[2Kaccept\\r::set-output" in shown
