"""The files of the job log: its lines by descriptor, its head, and whether the two agree."""

from __future__ import annotations

import os
from contextlib import contextmanager
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
)
from bootstrap.errors import UnsafeFileError
from bootstrap.files import CHUNK, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bootstrap.files import Directory

ATTEMPTS: Final = "attempts"  # what a log that was deleted with its head leaves behind


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


def read_head(directory: Directory) -> Head:
    """Return what the head file says, GENESIS where there is none. Raises LogChainError."""
    path = str(directory.path / HEAD_NAME)
    try:
        return decode_head(read_regular(directory, HEAD_NAME, HEAD_LIMIT), path)
    except UnsafeFileError as error:
        if error.reason == "missing":
            return GENESIS
        raise chain_error(path, error.expected, error.found) from error


def look(directory: Directory, fd: int, recorded: Head) -> Tail:
    """Read the tail of the open log, without judging whether it agrees with the head.

    Raises LogChainError where the last line cannot be parsed at all.
    """
    path = str(directory.path / LOG_NAME)
    size = os.fstat(fd).st_size
    lines = lines_backwards(fd, size, path)
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
        attempts = os.open(ATTEMPTS, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory.fd)
    except FileNotFoundError:
        return
    try:
        if os.listdir(attempts):
            raise chain_error(path, "the records of the attempts beside it", "no log")
    finally:
        os.close(attempts)


@contextmanager
def open_log(directory: Directory) -> Iterator[int]:
    """Open the log for reading; a missing one reads as empty. Raises LogChainError."""
    path = str(directory.path / LOG_NAME)
    try:
        fd = open_regular(directory, LOG_NAME)
    except UnsafeFileError as error:
        if error.reason != "missing":
            raise chain_error(path, error.expected, error.found) from error
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def lines_backwards(fd: int, size: int, path: str) -> Iterator[bytes]:
    """Yield what stands behind the last newline, then each line, last to first."""
    carry, position = b"", size
    while position:
        start = max(0, position - CHUNK)
        carry, *lines = (_read_block(fd, start, position, path) + carry).split(b"\n")
        yield from reversed(lines)
        _require_short(carry, path)
        position = start
    yield carry


def lines_between(fd: int, start: int, size: int, path: str) -> Iterator[bytes]:
    """Yield each line between two offsets, first to last, leaving out an unfinished one."""
    carry = b""
    for position in range(start, size, CHUNK):
        block = _read_block(fd, position, min(position + CHUNK, size), path)
        *lines, carry = (carry + block).split(b"\n")
        yield from lines
        _require_short(carry, path)


def _read_block(fd: int, start: int, end: int, path: str) -> bytes:
    try:
        block = os.pread(fd, end - start, start)
    except OSError as error:
        raise chain_error(path, "a file that can be read", str(error.strerror)) from error
    if len(block) != end - start:
        raise chain_error(path, f"{end} bytes", "a file that shrinks while it is read")
    return block


def _require_short(line: bytes, path: str) -> None:
    if len(line) >= LINE_LIMIT:
        raise chain_error(path, f"lines under {LINE_LIMIT} bytes", "a longer one")
