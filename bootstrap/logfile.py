"""Read the job log from its file: the tail, one generation's segment, or all of it.

Readers take no lock. A writer puts a line down first and its head after it, so a reader may
find an unfinished last line, which it leaves out, and a head one record behind, which it
accepts. Whatever else does not fit is judged only when neither head nor log moved meanwhile.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.chain import (
    GENESIS,
    HEAD_LIMIT,
    HEAD_NAME,
    LINE_LIMIT,
    LOG_NAME,
    Head,
    chain_error,
    decode_head,
    decode_record,
    follow,
)
from bootstrap.errors import LogChainError, UnsafeFileError
from bootstrap.files import CHUNK, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bootstrap.chain import Record
    from bootstrap.files import Directory

SEGMENT_LIMIT: Final = 16_384  # records of one generation: bounds a reader's memory
MINTED: Final = "generation_minted"


class Tail(NamedTuple):
    """The end of the log as one look found it.

    `recorded` is what the head file says, `last` what the last complete line says, `prev` that
    line's own `prev`; `end` is the offset behind it, `size` the file's: more than `end` when
    the last line is unfinished.
    """

    recorded: Head
    last: Head
    prev: str
    end: int
    size: int

    @property
    def behind(self) -> bool:
        """Tell whether the head is exactly one record behind: the trace of a crash."""
        return self.last.seq == self.recorded.seq + 1 and self.prev == self.recorded.sha256


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
    with _open_log(directory) as fd:
        head, prev, line, position = GENESIS, "", b"", 0
        while True:
            recorded, size = read_head(directory), os.fstat(fd).st_size
            for following in _lines(fd, position, size, path):
                try:
                    record = follow(head, following, path)
                except LogChainError as error:
                    raise _first_bad(line, head, path) or error from None
                head, prev, line = record.head, record.prev, following
                position += len(line) + 1
                yield record
            try:
                require_agreement(directory, Tail(recorded, head, prev, position, size))
            except LogChainError as error:
                if not _moved(directory, fd, recorded, size):
                    raise _first_bad(line, head, path) or error from None
            else:
                return


def _first_bad(line: bytes, head: Head, path: str) -> LogChainError | None:
    # A line that is only spelled otherwise shows when its successor names another digest.
    if head.seq:
        try:
            decode_record(line, f"{path} line {head.seq}")
        except LogChainError as error:
            return error
    return None


def read_head(directory: Directory) -> Head:
    """Return what the head file says, GENESIS where there is none. Raises LogChainError."""
    path = str(directory.path / HEAD_NAME)
    try:
        return decode_head(read_regular(directory, HEAD_NAME, HEAD_LIMIT), path)
    except UnsafeFileError as error:
        if error.reason == "missing":
            return GENESIS
        raise chain_error(path, error.expected, error.found) from error


def look(directory: Directory, fd: int) -> Tail:
    """Read head and tail of the open log, without judging whether they agree.

    Raises LogChainError where one of them cannot be parsed at all.
    """
    path = str(directory.path / LOG_NAME)
    recorded, size = read_head(directory), os.fstat(fd).st_size
    lines = _lines_backwards(fd, size, path)
    end = size - len(next(lines))
    last = next(lines, None)
    if last is None:
        return Tail(recorded, GENESIS, "", end, size)
    record = decode_record(last, f"{path}, its last line")
    return Tail(recorded, record.head, record.prev, end, size)


def require_agreement(directory: Directory, tail: Tail) -> None:
    """Raise LogChainError unless the head names the last line, or the one before it."""
    path = str(directory.path / LOG_NAME)
    last, recorded = tail.last, tail.recorded
    if last.seq < recorded.seq:
        missing = f"{path} line {last.seq + 1}"
        raise chain_error(missing, f"{recorded.seq} lines as {HEAD_NAME} says", "the end")
    if last == recorded == GENESIS:
        _require_unused(directory, path)
    elif last != recorded and not tail.behind:
        where = f"{path} line {last.seq}"
        expected = f"line {recorded.seq} with sha256 {recorded.sha256} as {HEAD_NAME} says"
        raise chain_error(where, expected, f"line {last.seq} with sha256 {last.sha256}")


def _require_unused(directory: Directory, path: str) -> None:
    # With log and head both deleted the chain looks new: only what it led to tells.
    try:
        attempts = os.open("attempts", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory.fd)
    except FileNotFoundError:
        return
    try:
        if os.listdir(attempts):
            raise chain_error(path, "the records of the attempts beside it", "no log")
    finally:
        os.close(attempts)


def _backwards(directory: Directory) -> Iterator[Record]:
    path = str(directory.path / LOG_NAME)
    with _open_log(directory) as fd:
        tail = _settle(directory, fd)
        lines = _lines_backwards(fd, tail.end, path)
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


def _settle(directory: Directory, fd: int) -> Tail:
    """Look until head and log agree; raise only when they stand still and do not."""
    while True:
        recorded, size = read_head(directory), os.fstat(fd).st_size
        try:
            tail = look(directory, fd)
            require_agreement(directory, tail)
        except LogChainError:
            if not _moved(directory, fd, recorded, size):
                raise
        else:
            return tail


def _moved(directory: Directory, fd: int, recorded: Head, size: int) -> bool:
    return (read_head(directory), os.fstat(fd).st_size) != (recorded, size)


@contextmanager
def _open_log(directory: Directory) -> Iterator[int]:
    try:
        fd = open_regular(directory, LOG_NAME)
    except UnsafeFileError as error:
        if error.reason != "missing":
            raise chain_error(
                str(directory.path / LOG_NAME), error.expected, error.found
            ) from error
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)  # no log yet reads as an empty one
    try:
        yield fd
    finally:
        os.close(fd)


def _lines_backwards(fd: int, size: int, path: str) -> Iterator[bytes]:
    """Yield what stands behind the last newline, then each line, last to first."""
    carry, position = b"", size
    while position:
        start = max(0, position - CHUNK)
        carry, *lines = (_read_block(fd, start, position, path) + carry).split(b"\n")
        yield from reversed(lines)
        _require_short(carry, path)
        position = start
    yield carry


def _lines(fd: int, start: int, size: int, path: str) -> Iterator[bytes]:
    """Yield each line between two offsets, first to last, leaving out an unfinished one."""
    carry = b""
    for position in range(start, size, CHUNK):
        block = _read_block(fd, position, min(position + CHUNK, size), path)
        *lines, carry = (carry + block).split(b"\n")
        yield from lines
        _require_short(carry, path)


def _read_block(fd: int, start: int, end: int, path: str) -> bytes:
    block = os.pread(fd, end - start, start)
    if len(block) != end - start:
        raise chain_error(path, f"{end} bytes", "a file that shrinks while it is read")
    return block


def _require_short(line: bytes, path: str) -> None:
    if len(line) >= LINE_LIMIT:
        raise chain_error(path, f"lines under {LINE_LIMIT} bytes", "a longer one")
