"""Which records of a log are printed, and waiting for more of them."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from bootstrap.chain import LOG_NAME, chain_error
from bootstrap.errors import UsageError
from bootstrap.joblog import read_tail, verify_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bootstrap.files import Directory
    from bootstrap.joblog import Record
    from bootstrap.signals import SignalInbox

POLL_SECONDS: Final = 0.25
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class View:
    """Which records to print: all that match everything given."""

    since: datetime | None = None
    events: frozenset[str] = frozenset()
    attempt_id: str | None = None

    def shows(self, record: Record) -> bool:
        """Tell whether a record is to be printed."""
        return (
            (not self.events or record.event in self.events)
            and (self.attempt_id is None or record.fields.get("attempt_id") == self.attempt_id)
            and (self.since is None or self.since <= _time_of(record))
        )


def _time_of(record: Record) -> datetime:
    try:
        return datetime.fromisoformat(record.time).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)  # a time that tells nothing hides no record


def parse_since(text: str, now: datetime) -> datetime:
    """Return the moment that `30m`, `2h`, `1d` or an ISO 8601 time names. Raises UsageError."""
    try:
        if ago := re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII):
            return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            "--since",
            expected="a time such as 2026-11-30T21:00Z, or an age such as 30m, 2h, 1d",
            found=text,
            remedy="correct it",
        ) from error


def follow(directory: Directory, inbox: SignalInbox) -> Iterator[Record]:
    """Yield every record, then each new one as it is written, until a signal comes.

    Raises LogChainError, also when what follows does not continue what was printed.
    """
    last: Record | None = None
    for last in verify_all(directory):
        yield last
    while inbox.pending is None:
        time.sleep(POLL_SECONDS)
        for record in _after(directory, last):
            yield record
            last = record


def _after(directory: Directory, last: Record | None) -> tuple[Record, ...]:
    seen = last.seq if last else 0
    newest = read_tail(directory, 1)
    end = newest[-1].seq if newest else 0
    if end == seen:
        return ()
    records = read_tail(directory, end - seen)
    if last and (end < seen or records[0].seq != seen + 1 or records[0].prev != last.sha256):
        where = f"{directory.path / LOG_NAME} line {seen}"
        raise chain_error(where, f"sha256 {last.sha256}", "another log")
    return records
