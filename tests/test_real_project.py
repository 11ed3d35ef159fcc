"""A job on a real project: run by hand with `pytest -m network`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import Job

if TYPE_CHECKING:
    from pathlib import Path

PROJECT: Final = "inflection"
VERSION: Final = "0.5.1"
MODULE: Final = "inflection/__init__.py"
# A rule that an early version lacked: it made "humen" of "human".
RULE: Final = "_irregular('human', 'humans')\n"

AGENT: Final = f"""\
import difflib, pathlib
file = pathlib.Path({MODULE!r})
before = file.read_text()
after = before.replace("_irregular('child'", {RULE!r} + "_irregular('child'")
file.write_text(after)
lines = difflib.unified_diff(
    before.splitlines(True), after.splitlines(True), {"a/" + MODULE!r}, {"b/" + MODULE!r}
)
pathlib.Path("change.diff").write_text("".join(lines))
"""
LAZY_AGENT: Final = AGENT.replace(f"{RULE!r} +", "'# looks right to me\\n' +")


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch and unpack the source distribution of the project."""
    directory = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary=:all:",
            "--dest",
            str(directory),
            f"{PROJECT}=={VERSION}",
        ],
        check=True,
        timeout=300,
    )
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(directory, filter="data")
    return directory / f"{PROJECT}-{VERSION}"


def _job(fixed: Path, directory: Path) -> Job:
    broken = (fixed / MODULE).read_text().replace(RULE, "")
    assert broken != (fixed / MODULE).read_text()
    job = Job(directory)
    for place in (job.base, job.workspace):
        shutil.copytree(fixed, place)
        (place / MODULE).write_text(broken)
    job.prompt.write_text("The plural of human is humans.\n")
    return job


def _run(job: Job, agent: str) -> subprocess.CompletedProcess[str]:
    return job.run(
        *("--base", str(job.base), "--agent", job.agent(agent), "--score-format", "junit"),
        scorer=[
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--override-ini=addopts=", "--junitxml={score}", "test_inflection.py"),
        ],
    )


@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_real_fix_is_accepted_by_the_projects_own_suite(fixed: Path, tmp_path: Path) -> None:
    """The bug comes back, an agent mends it, the project's tests judge its diff: accept."""
    job = _job(fixed, tmp_path)
    done = _run(job, AGENT)
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr
    assert RULE in (job.workspace / MODULE).read_text()


@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_fix_that_fixes_nothing_is_rejected(fixed: Path, tmp_path: Path) -> None:
    """The same job with an agent that only adds a comment: the suite fails, reject."""
    done = _run(_job(fixed, tmp_path), LAZY_AGENT)
    assert (done.returncode, done.stdout) == (1, "reject: verdict\n"), done.stderr
