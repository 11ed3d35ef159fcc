"""Read and verify the job log: its tail, one generation's segment, or all of it.

Readers take no lock. A writer puts a line down first and its head after it, so a reader may
find an unfinished last line, which it leaves out, and a head one record behind, which it
accepts. Whatever else does not fit is judged only when neither head nor log moved meanwhile.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.chain import GENESIS, LOG_NAME, Head, Record, chain_error, decode_record, follow
from bootstrap.errors import LogChainError
from bootstrap.logfile import (
    Tail,
    lines_backwards,
    lines_between,
    look,
    open_log,
    read_head,
    require_agreement,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bootstrap.files import Directory

SEGMENT_LIMIT: Final = 16_384  # records of one generation: bounds a reader's memory
MINTED: Final = "generation_minted"
CLOSING: Final = frozenset({"accepted", "rejected", "attempt_aborted"})  # one ends an attempt


def read_segment(directory: Directory, generation: str | None) -> tuple[Record, ...]:
    """Return the records from one `generation_minted` to the end of the log, oldest first.

    Each is verified against the digest that its successor, and the last that the head, names.
    A later `generation_minted` stays in the result: its presence says that the generation is
    no longer in force. None asks for the segment of the generation minted last, and is empty
    for a log without one. Raises LogChainError, also when the generation is not within the
    last SEGMENT_LIMIT records.
    """
    segment: list[Record] = []
    for record in islice(_backwards(directory), SEGMENT_LIMIT):
        segment.append(record)
        if record.event == MINTED and generation in (None, record.fields.get("generation")):
            return tuple(reversed(segment))
    if generation is None and len(segment) < SEGMENT_LIMIT:
        return ()
    raise chain_error(
        str(directory.path / LOG_NAME),
        f"{MINTED} of {generation or 'a generation'}",
        f"none in the last {len(segment)} records",
        "run a bootstrap, which mints a generation and logs it",
    )


def read_tail(directory: Directory, count: int) -> tuple[Record, ...]:
    """Return the last `count` records, oldest first, verified back from the head."""
    return tuple(reversed(list(islice(_backwards(directory), count))))


def verify_all(directory: Directory) -> Iterator[Record]:
    """Yield every record from the first on, verifying each, then the head. Memory is constant.

    Raises LogChainError naming the first bad line and what is wrong with it. What was yielded
    before stands; the log as a whole is verified only when the iterator ends. An unkeyed chain
    cannot prove that it is the one the runner wrote: compare its end with a copy kept elsewhere.
    """
    path = str(directory.path / LOG_NAME)
    point = _Point(GENESIS, b"", 0)
    while True:
        with open_log(directory) as fd:
            recorded, size = read_head(directory), os.fstat(fd).st_size
            point = yield from _verified(fd, point, size, path)
            try:
                require_agreement(directory, point.as_tail(recorded, size))
            except LogChainError as error:
                if not _moved(directory, fd, recorded, size):
                    raise point.why(path) or error from None
            else:
                return


class _Point(NamedTuple):
    """How far a verification came: the last record, its line, and the offset behind it."""

    last: Head | Record
    line: bytes
    position: int

    def as_tail(self, recorded: Head, size: int) -> Tail:
        prev = self.last.prev if isinstance(self.last, Record) else ""
        return Tail(recorded, Head(self.last.seq, self.last.sha256), prev, self.position, size)

    def why(self, path: str) -> LogChainError | None:
        """Return what is wrong with the last line itself.

        A line that is only spelled otherwise shows when its successor names another digest.
        """
        try:
            if self.line:
                decode_record(self.line, f"{path} line {self.last.seq}")
        except LogChainError as error:
            return error
        return None


def _verified(fd: int, point: _Point, size: int, path: str) -> Generator[Record, None, _Point]:
    last, line, position = point
    for following in lines_between(fd, position, size, path):
        try:
            last = follow(last, following, path)
        except LogChainError as error:
            raise _Point(last, line, position).why(path) or error from None
        line = following
        position += len(line) + 1
        yield last
    return _Point(last, line, position)


def _backwards(directory: Directory) -> Iterator[Record]:
    path = str(directory.path / LOG_NAME)
    with _settled(directory) as (fd, tail):
        lines = lines_backwards(fd, tail.end, path)
        next(lines)
        expected = tail.last
        for line in lines:
            where = f"{path} line {expected.seq}"
            record = decode_record(line, where)
            if record.head != expected:
                found = f"line {record.seq} with sha256 {record.sha256}"
                raise chain_error(where, f"sha256 {expected.sha256}", found)
            expected = Head(record.seq - 1, record.prev)
            yield record
        if expected != GENESIS:
            raise chain_error(f"{path} line {expected.seq}", "a line", "the start of the file")


@contextmanager
def _settled(directory: Directory) -> Iterator[tuple[int, Tail]]:
    """Open the log and look until it agrees with its head, or stands still and does not."""
    while True:
        with open_log(directory) as fd:
            tail = _agreed(directory, fd)
            if tail:
                yield fd, tail
                return


def _agreed(directory: Directory, fd: int) -> Tail | None:
    recorded, size = read_head(directory), os.fstat(fd).st_size
    try:
        tail = look(directory, fd, recorded)
        require_agreement(directory, tail)
    except LogChainError:
        if not _moved(directory, fd, recorded, size):
            raise
        return None
    return tail


def _moved(directory: Directory, fd: int, recorded: Head, size: int) -> bool:
    return (read_head(directory), os.fstat(fd).st_size) != (recorded, size)
