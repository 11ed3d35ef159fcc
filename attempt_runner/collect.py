"""Count what many job logs tell, one record at a time, with every chain verified."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.gate import ORDER
from bootstrap.chain import LOG_NAME
from bootstrap.errors import ConfigurationError, LogChainError
from bootstrap.files import open_directory
from bootstrap.joblog import CLOSING, verify_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bootstrap.joblog import Record

OTHER: Final = "other"  # a reject name that this version does not know


@dataclass(slots=True)
class Tally:
    """What one log, or many together, hold. Every attempt is in one of the last four counts.

    `rejects` counts the fields of rejected attempts; `broken` says why a chain is no proof:
    what was counted before the bad line stands, and no more than that.
    """

    name: str
    records: int = 0
    generations: int = 0
    attempts: int = 0
    failed_over: int = 0
    accepted: int = 0
    rejected: int = 0
    aborted: int = 0
    open: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    broken: str = ""

    def add(self, other: Tally) -> None:
        """Add the counts of another."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rejects.update(other.rejects)

    def as_row(self) -> dict[str, object]:
        """Return the counts by name, for a table or JSON."""
        counts = {name: getattr(self, name) for name in ("name", *COUNTS)}
        return {**counts, "rejects": dict(self.rejects), "broken": self.broken}


COUNTS: Final = (
    "records",
    "generations",
    "attempts",
    "accepted",
    "rejected",
    "aborted",
    "open",
    "failed_over",
)


def find_logs(places: tuple[Path, ...]) -> Iterator[Path]:
    """Yield each directory with a job log: a given one, or one directly in a given one.

    Raises ConfigurationError for a place that holds none: nothing found is not nothing wrong.
    """
    for place in places:
        found = [place] if _has_log(place) else _logs_in(place)
        if not found:
            raise _refused(place, "no job log in it")
        yield from found


def _logs_in(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return sorted(path for path in map(Path, entries) if _has_log(path))
    except OSError as error:
        raise _refused(place, error.strerror or "an error") from error


def _has_log(place: Path) -> bool:
    return not place.is_symlink() and (place / LOG_NAME).exists()


def tally_log(place: Path) -> Tally:
    """Count one log in constant memory, verifying its whole chain."""
    tally = Tally(place.name)
    open_id: object = None
    try:
        with open_directory(place) as directory:
            for record in verify_all(directory):
                open_id = _count(tally, record, open_id)
    except LogChainError as error:
        tally.broken = str(error)
    tally.open = int(open_id is not None)
    return tally


def _count(tally: Tally, record: Record, open_id: object) -> object:
    """Count a record; return the attempt that is open after it.

    One is closed before another starts, and only its first closing record is its decision: a
    gate may reject it later.
    """
    tally.records += 1
    event, attempt_id = record.event, record.fields.get("attempt_id")
    tally.generations += event == "generation_minted"
    tally.failed_over += event == "failed_over"
    if event == "attempt_started":
        tally.attempts += 1
        return attempt_id
    if event not in CLOSING or attempt_id != open_id or open_id is None:
        return open_id
    tally.accepted += event == "accepted"
    tally.aborted += event == "attempt_aborted"
    if event == "rejected":
        tally.rejected += 1
        tally.rejects.update(_reject_names(record))
    return None


def _reject_names(record: Record) -> Iterator[str]:
    fields = record.fields.get("fields")
    for name in fields if isinstance(fields, list) else ():
        yield name if name in ORDER else OTHER


def _refused(place: Path, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"state directory {place}",
        expected="job logs to collect",
        found=found,
        remedy="name a state directory, or a directory of such",
    )
