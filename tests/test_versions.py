"""State directories of every version so far, as files in `golden/versions`, read by this one."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap import __version__
from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from subprocess import CompletedProcess

VERSIONS: Final = sorted((Path(__file__).with_name("golden") / "versions").iterdir())

FINDINGS: Final = {"accepted": [], "rejected": ["verdict"]}


@pytest.fixture(params=VERSIONS, ids=lambda path: str(path.name))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """Put a version's state where this version looks for a workspace's."""
    job = make_job(tmp_path)
    key = hashlib.sha256(str(job.workspace.resolve()).encode()).hexdigest()[:12]
    folder = job.state_root / f"{job.workspace.name}-{key}"
    shutil.copytree(request.param, folder)
    for directory in (job.state_root, folder, *folder.rglob("*/")):
        directory.chmod(0o700)  # git keeps no modes
    return job


def _says(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def _attempts(job: Job) -> dict[str, str]:
    endings = {"accepted", "rejected"}
    return {item["event"]: item["attempt_id"] for item in job.log if item["event"] in endings}


def test_this_version_left_its_state_behind() -> None:
    """A release that changes the version writes its state: see write_version.py."""
    assert __version__ in {path.name for path in VERSIONS}


def test_the_log_of_an_earlier_version_verifies(old: Job) -> None:
    """Every record is read, and the chain holds from the first line to the head."""
    verified = json.loads(_says(old.command("log", "--verify", "--json")))
    assert verified == {"records": len(old.log), "verified": True}
    lines = _says(old.command("log", "--json")).splitlines()
    assert [json.loads(line)["event"] for line in lines] == old.events


def test_attempts_of_an_earlier_version_are_shown_and_explained(old: Job) -> None:
    """How an attempt ended, and why, can be told after any number of upgrades."""
    ended = _attempts(old)
    assert set(ended) == {"accepted", "rejected"}
    for event, attempt in ended.items():
        shown = json.loads(_says(old.command("show", attempt, "--json")))
        assert (shown["attempt_id"], shown["outcome"]) == (attempt, event)
        assert [item["field"] for item in shown["findings"]] == FINDINGS[event]
        assert attempt in _says(old.command("show", attempt))
        assert event in _says(old.command("explain", attempt))


def test_an_attempt_of_another_workspace_is_not_accepted(old: Job) -> None:
    """Read, yes; merged, never: this workspace is not the one that was opened then."""
    done = old.command("gate", _attempts(old)["accepted"])
    assert done.returncode != 0
    assert "accept\n" not in done.stdout


def test_the_next_job_starts_on_an_earlier_versions_state(old: Job) -> None:
    """An upgrade needs no migration: the chain goes on where it ended."""
    before = len(old.log)
    assert _says(old.run("--base", str(old.base))) == "accept\n"
    assert len(old.log) > before
    assert old.log[before]["seq"] == before + 1
    assert _says(old.command("log", "--verify"))
