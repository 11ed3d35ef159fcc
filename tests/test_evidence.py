"""Evidence: what the gate is given, with a fault in place of each file that cannot be judged."""

from __future__ import annotations

import os
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from attempt_runner.evidence import Evidence, FileFault, load_evidence
from bootstrap.errors import LogChainError, TamperedStateError, UnsafeFileError, UsageError
from bootstrap.files import open_directory
from bootstrap.live import LivePath
from bootstrap.state import open_state
from tests.jobs import DIFF, Job, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run one accepted job."""
    job = make_job(tmp_path_factory.mktemp("accepted"))
    assert job.run().stdout == "accept\n"
    return job


def load(
    job: Job,
    attempt: str = "",
    diff: LivePath | None = None,
    prompt: LivePath | None = None,
) -> Evidence:
    """Load the evidence of a job's last attempt."""
    with (
        open_state(job.workspace, job.state_root, create=False, named=True) as state,
        open_directory(job.workspace) as workspace,
    ):
        return load_evidence(
            state,
            attempt or job.last,
            workspace,
            live_diff=diff,
            live_prompt=prompt,
            claims={"model_id": "claimed"},
        )


def test_evidence_is_what_lies_there(accepted: Job) -> None:
    """Digests of sealed and live files, the receipt's bytes, the generation's part of the log."""
    found = load(accepted)
    digest = sha256(DIFF.encode()).hexdigest()
    assert (found.sealed_diff, found.live_diff) == (digest, digest)
    assert found.sealed_prompt == found.live_prompt == sha256(b"Make x two.\n").hexdigest()
    assert found.receipt == (accepted.attempts[0] / "receipt.json").read_bytes()
    assert found.in_force == found.identity.generation
    assert [record.event for record in found.segment] == accepted.events
    status = accepted.workspace.stat()
    assert found.workspace == (status.st_dev, status.st_ino)
    assert found.claims == {"model_id": "claimed"}
    assert found.moved is None  # nothing was captured


@contextmanager
def moved(path: Path) -> Iterator[Path]:
    """Move a file aside, and back over whatever was put in its place."""
    aside = path.rename(path.with_name(f"{path.name}.aside"))
    try:
        yield aside
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "missing"),
        ("directory", "not_regular"),
        ("fifo", "not_regular"),
        ("link", "not_regular"),
        ("empty", "empty"),
        ("hard link", "links"),
    ],
)
def test_a_file_that_cannot_be_judged_is_a_fault(accepted: Job, kind: str, reason: str) -> None:
    """For each of the four files that an agent or a scorer could have spoiled."""
    attempt = accepted.attempts[0]
    fields = {
        "receipt": attempt / "receipt.json",
        "sealed_diff": attempt / "patch.diff",
        "sealed_prompt": attempt / "prompt",
        "live_diff": accepted.diff,
    }
    for field, path in fields.items():
        with moved(path) as aside:
            spoil(path, aside, kind)
            found = getattr(load(accepted), field)
        if field == "receipt" and kind == "empty":
            assert found == b""
        else:
            assert isinstance(found, FileFault), field
            assert found.reason == reason, field
    assert isinstance(load(accepted).receipt, bytes)


def spoil(path: Path, aside: Path, kind: str) -> None:
    """Put something else in a file's place."""
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(aside)
    elif kind == "hard link":
        path.hardlink_to(aside)
    elif kind == "empty":
        path.touch()


def test_other_live_paths_take_the_place_of_the_frozen_ones(accepted: Job, tmp_path: Path) -> None:
    """A prompt outside the workspace may be a link, a diff may not."""
    (tmp_path / "file").write_text("other")
    (tmp_path / "link").symlink_to("file")
    digest = sha256(b"other").hexdigest()
    live = LivePath(tmp_path / "file", None)
    link = LivePath(tmp_path / "link", None)
    assert load(accepted, diff=live, prompt=link).live_diff == digest
    assert load(accepted, diff=live, prompt=link).live_prompt == digest
    assert isinstance(load(accepted, diff=link).live_diff, FileFault)


def test_a_workspace_that_moved_away_is_seen(accepted: Job) -> None:
    """The path is looked at anew, not the descriptor that the caller holds."""
    with (
        open_state(accepted.workspace, accepted.state_root, create=False, named=True) as state,
        open_directory(accepted.workspace) as workspace,
        moved(accepted.workspace),
    ):
        found = load_evidence(
            state, accepted.last, workspace, live_diff=None, live_prompt=None, claims={}
        )
        assert found.workspace is None
        assert isinstance(found.live_diff, str)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("attempt.json", TamperedStateError),
        ("../../job-log.jsonl", LogChainError),
        ("../../job-log.head", LogChainError),
    ],
)
def test_a_file_of_the_runners_own_that_is_gone_is_no_evidence(
    accepted: Job, name: str, error: type[Exception]
) -> None:
    """Nobody but the runner writes these: nothing can be judged without them."""
    attempt = accepted.last
    with moved(accepted.attempts[0] / name), pytest.raises(error):
        load(accepted, attempt)


def test_an_attempt_that_is_not_there_is_no_evidence(accepted: Job) -> None:
    """An unknown id is missing, and what is no id never becomes a path."""
    with pytest.raises(UnsafeFileError):
        load(accepted, f"att-20261130T214455Z-{'0' * 32}")
    with pytest.raises(UsageError):
        load(accepted, "../attempts")
