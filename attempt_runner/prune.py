"""Prune a workspace's state: closed attempts, a baseline nobody needs, quarantined tails.

Never the job log, nor a broken one that was closed aside; never an attempt that is open, or
that the log does not name: that one is evidence of something else.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.change import BASELINE
from bootstrap.chain import LOG_NAME, chain_error
from bootstrap.files import Directory, make_directory, open_directory_beneath, storage_error
from bootstrap.generation import is_minted
from bootstrap.joblog import CLOSING, TORN_PREFIX, JobLog, Record, read_segment, verify_all
from bootstrap.state import ATTEMPTS
from bootstrap.wipe import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bootstrap.state import State

PRUNING: Final = "pruning"  # what is on its way out: recorded, then removed
NAMES_A_RECORD: Final = 1000  # far below the limit of a line


@dataclass(frozen=True, slots=True)
class Closed:
    """Something that may go: `since` counts log records, `closed_at` is its closing's time."""

    name: str
    since: int
    closed_at: datetime


@dataclass(frozen=True, slots=True)
class Doomed:
    """What is pruned, oldest first: attempt ids, files of quarantined tails, the baseline."""

    attempts: tuple[str, ...]
    tails: tuple[str, ...]
    baseline: bool


def select(state: State, *, keep: int | None, closed_before: datetime | None) -> Doomed:
    """Choose what to prune: all but the last `keep`, or what was closed before a moment.

    One of the two is None. Closed attempts are ordered by their start in the log, whose whole
    chain is verified. A tail goes with the attempts of its time, the baseline with the last
    attempt that used it. The caller holds the workspace lock. Raises LogChainError, and
    StorageError for a state directory that cannot be listed.
    """
    attempts, tails = _closed(state)
    if keep is not None:
        kept = attempts[max(0, len(attempts) - keep) :]
        first = kept[0].since if kept else None
        gone = attempts[: len(attempts) - len(kept)]
        tails = [item for item in tails if first is None or item.since < first]
    elif closed_before is not None:
        gone = [item for item in attempts if item.closed_at < closed_before]
        tails = [item for item in tails if item.closed_at < closed_before]
    else:
        raise ValueError("expected a number to keep or a moment, got neither")
    names = tuple(item.name for item in gone)
    return Doomed(names, tuple(item.name for item in tails), _is_spent(state, names))


def prune(state: State, doomed: Doomed) -> None:
    """Remove what `select` chose: taken out of its place, recorded as `pruned`, then removed.

    A pruned attempt is never there by halves. What an interrupted call had taken out is
    recorded again and removed by the next. The caller holds the workspace lock. Raises
    LogChainError, StorageError, WipeError.
    """
    try:
        with suppress(FileExistsError):
            make_directory(state.directory, PRUNING).close()
        with open_directory_beneath(state.directory, PRUNING) as pruning:
            _take_out(state, pruning, doomed)
            names = sorted(os.listdir(pruning.fd))
    except OSError as error:
        raise storage_error(state.directory.path / PRUNING, error) from error
    log = JobLog(state.directory)
    for start in range(0, len(names), NAMES_A_RECORD):
        log.append("pruned", names=names[start : start + NAMES_A_RECORD])
    remove_tree(state.directory, PRUNING)


def _take_out(state: State, pruning: Directory, doomed: Doomed) -> None:
    places = [
        *(f"{ATTEMPTS}/{name}" for name in doomed.attempts),
        *doomed.tails,
        *([BASELINE] if doomed.baseline else []),
    ]
    for place in places:
        name = place.rpartition("/")[2]
        # A directory of an earlier call, interrupted, may be there under the same name.
        remove_tree(pruning, name)
        os.rename(place, name, src_dir_fd=state.directory.fd, dst_dir_fd=pruning.fd)
    for directory in (pruning, state.directory):
        os.fsync(directory.fd)


def _closed(state: State) -> tuple[list[Closed], list[Closed]]:
    """Return the attempts and the tails that are there and that the log tells the end of."""
    attempts, tails = _present(state)
    started: dict[str, int] = {}
    found: tuple[dict[str, Closed], dict[str, Closed]] = ({}, {})
    for record in verify_all(state.directory):
        attempt, file = record.fields.get("attempt_id"), record.fields.get("file")
        if attempt in attempts and record.event == "attempt_started":
            started[str(attempt)] = record.seq
        elif attempt in started and record.event in CLOSING:
            found[0][str(attempt)] = _closed_by(record, str(attempt), started[str(attempt)])
        elif file in tails and record.event == "tail_quarantined":
            found[1][str(file)] = _closed_by(record, str(file), record.seq)
    by_start = [sorted(items.values(), key=lambda item: item.since) for items in found]
    return by_start[0], by_start[1]


def _closed_by(record: Record, name: str, since: int) -> Closed:
    try:
        return Closed(name, since, datetime.fromisoformat(record.time).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        where = f"{LOG_NAME} line {record.seq}"
        raise chain_error(where, "the time of a record", record.time) from error


def _present(state: State) -> tuple[frozenset[str], frozenset[str]]:
    tails = frozenset(n for n in _list(state.directory) if n.startswith(TORN_PREFIX))
    try:
        attempts = open_directory_beneath(state.directory, ATTEMPTS)
    except FileNotFoundError:
        return frozenset(), tails
    with attempts:
        return frozenset(n for n in _list(attempts) if is_minted("att", n)), tails


def _list(directory: Directory) -> Iterable[str]:
    try:
        return os.listdir(directory.fd)
    except OSError as error:
        raise storage_error(directory.path, error) from error


def _is_spent(state: State, gone: tuple[str, ...]) -> bool:
    """Tell whether the baseline is there and no attempt that stays, or is to come, needs it."""
    if BASELINE not in _list(state.directory):
        return False
    segment = read_segment(state.directory, None)
    frozen: Any = next((item.fields for item in segment if item.event == "model_frozen"), {})
    if "baseline" not in frozen:
        return True  # an earlier generation's, or one whose bootstrap was not finished
    attempts = {item.fields["attempt_id"] for item in segment if item.event == "attempt_started"}
    decided = any(item.event in ("accepted", "rejected") for item in segment)
    return decided and attempts <= set(gone)
