"""The sample job that ships with the project, and every command of the README."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import Job, clean_environment
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parent.parent
EXAMPLE: Final = ROOT / "examples" / "fix-a-bug"
PLANTED: Final = ("receipt.json", "score.json", "report.xml")


def _run(directory: Path, agent: str, *flags: str) -> tuple[Job, subprocess.CompletedProcess[str]]:
    job = Job(directory)
    for place in (job.base, job.workspace):
        shutil.copytree(EXAMPLE / "repository", place)
    shutil.copy(EXAMPLE / "prompt.md", job.prompt)
    paths = [word for path in PLANTED for word in ("--score-path", path)]
    done = job.command(
        "run",
        *("--model", "model-a", "--prompt", str(job.prompt), "--base", str(job.base)),
        *("--diff", str(job.diff), "--scratch-dir", str(directory)),
        *("--agent", f"{sys.executable} {EXAMPLE / agent}", *paths, *flags),
        *("--", sys.executable, str(EXAMPLE / "scorer.py")),
    )
    return job, done


@needs("git", "landlock")
@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_the_sample_job_is_accepted(tmp_path: Path, isolation: str) -> None:
    """An agent mends a bug; pytest, confined, passes the patched copy: accept."""
    job, done = _run(tmp_path, "agent.py", "--isolation", isolation)
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr
    assert "4 passed" in (job.attempts[0] / "scorer.log").read_text()


@needs("git", "landlock")
@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_an_agent_that_plants_scores_is_rejected(tmp_path: Path, isolation: str) -> None:
    """Planted scores and a process that plants them again change nothing: reject."""
    job, done = _run(tmp_path, "cheat.py", "--isolation", isolation)
    assert (done.returncode, done.stdout) == (1, "reject: verdict\n"), done.stderr
    assert not any((job.workspace / path).exists() for path in PLANTED)


def _blocks(page: Path) -> Sequence[str]:
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@needs("git", "landlock")
@pytest.mark.timeout(600)
def test_every_command_of_the_readme_runs() -> None:
    """A newcomer pastes the README's blocks one after the other, and each ends well."""
    blocks = _blocks(ROOT / "README.md")
    assert len(blocks) > 3
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(blocks)],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("accept") == 3  # the sample job, one's own job, its gate
    assert "reject: verdict" in lines
