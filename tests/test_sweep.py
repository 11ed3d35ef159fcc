"""The sweep: what an earlier run left open is closed, stopped and removed - and said how surely."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import IntegrityError, ProcessesRemainError
from bootstrap.joblog import read_segment
from bootstrap.processes import MARKER_VARIABLE
from bootstrap.scorepath import check_score_path
from bootstrap.sweep import open_attempts, sweep
from tests.attempts import MARKER, Scene, scene
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bootstrap.joblog import Record

PATHS: Final = (check_score_path("out/score"),)


@pytest.fixture
def laid_out(tmp_path: Path) -> Iterator[Scene]:
    """Lay out a workspace with a generation and no attempt."""
    with scene(tmp_path) as made:
        yield made


@pytest.fixture
def stray() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that an earlier run could have left."""
    environ = {**os.environ, MARKER_VARIABLE: MARKER}
    with subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True) as process:
        yield process
        process.kill()


def swept(made: Scene, *, strict: bool = False) -> list[Record]:
    """Sweep, and return the records that it wrote."""
    before = len(read_segment(made.state.directory, None))
    sweep(made.state, made.log, made.workspace, PATHS, strict=strict)
    return list(read_segment(made.state.directory, None)[before:])


def test_where_nothing_was_left_nothing_is_written(laid_out: Scene) -> None:
    """A closed attempt is not closed again, whatever closed it."""
    for event in ("accepted", "rejected", "attempt_aborted"):
        laid_out.log.append(event, attempt_id=laid_out.start().attempt_id)
    assert swept(laid_out, strict=True) == []


def test_every_open_attempt_is_closed_and_cleaned_up(laid_out: Scene) -> None:
    """Oldest first, each with its model; its exchange directory goes, its own directory stays."""
    left = [laid_out.start(boot_id="another") for _ in range(3)]
    trash = laid_out.workspace.path / "out" / f".attempt-trash-{'0' * 32}"
    (trash / "0").mkdir(parents=True)
    records = swept(laid_out, strict=True)
    assert [item.event for item in records] == ["attempt_aborted"] * 3
    assert [item.fields["attempt_id"] for item in records] == [one.attempt_id for one in left]
    assert {item.fields["proof"] for item in records} == {"another boot"}
    assert not any(one.exchange.exists() for one in left)
    assert not trash.exists()
    attempts = laid_out.state.directory.path / "attempts"
    assert len(list(attempts.iterdir())) == 3
    assert swept(laid_out) == []


@needs("linux")
def test_a_process_with_the_mark_is_stopped(
    laid_out: Scene, stray: subprocess.Popen[bytes]
) -> None:
    """Searched and stopped, not proved: the record says so, and counts."""
    laid_out.start()
    (record,) = swept(laid_out)
    assert stray.wait(timeout=60) == -9
    assert record.fields["processes_stopped"] == 1
    assert record.fields["proof"] == "searched, not proved"


@needs("linux")
def test_another_boot_has_no_processes_to_search(
    laid_out: Scene, stray: subprocess.Popen[bytes]
) -> None:
    """With another boot id all of them are gone for certain: nobody is signalled."""
    laid_out.start(boot_id="another")
    (record,) = swept(laid_out, strict=True)
    assert record.fields["processes_stopped"] == 0
    assert stray.poll() is None


@needs("linux")
def test_strict_refuses_what_is_not_proved(laid_out: Scene, stray: subprocess.Popen[bytes]) -> None:
    """77, and the attempt stays open: the next start without --strict closes it."""
    left = laid_out.start()
    with pytest.raises(ProcessesRemainError, match="not proved"):
        swept(laid_out, strict=True)
    assert open_attempts(read_segment(laid_out.state.directory, None)) == [left.attempt_id]
    assert left.exchange.exists()
    (record,) = swept(laid_out)
    assert record.fields["attempt_id"] == left.attempt_id
    assert stray.wait(timeout=60) == -9


def test_a_scratch_directory_that_is_gone_has_nothing_to_remove(laid_out: Scene) -> None:
    """Somebody may have emptied TMPDIR since: the attempt is closed all the same."""
    left = laid_out.start(boot_id="another")
    (left.exchange / "agent").rmdir()
    left.exchange.rmdir()
    left.exchange.parent.rmdir()
    assert [item.event for item in swept(laid_out)] == ["attempt_aborted"]


@pytest.mark.parametrize("kind", ["gone", "emptied"])
def test_an_attempt_whose_files_are_gone_holds_the_machine(laid_out: Scene, kind: str) -> None:
    """Without attempt.json nobody knows what to stop: nothing is closed by guess."""
    left = laid_out.start()
    directory = laid_out.state.directory.path / "attempts" / left.attempt_id
    (directory / "attempt.json").unlink()
    if kind == "gone":
        directory.rmdir()
    with pytest.raises(IntegrityError):
        swept(laid_out)
    assert open_attempts(read_segment(laid_out.state.directory, None)) == [left.attempt_id]


def test_what_follows_in_another_generation_is_not_looked_for(laid_out: Scene) -> None:
    """Every bootstrap sweeps, so an open attempt can only be of the last generation."""
    laid_out.start(boot_id="another")
    laid_out.log.append("generation_minted", generation="gen-20261130T214455Z-" + "2" * 32)
    assert swept(laid_out, strict=True) == []
