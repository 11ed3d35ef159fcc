"""The job log: append to it durably, and mend what a crash left."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from bootstrap.chain import (
    GENESIS,
    HEAD_NAME,
    LINE_LIMIT,
    LOG_NAME,
    Head,
    Record,
    chain_error,
    encode_head,
    encode_record,
    follow,
)
from bootstrap.errors import RunnerError, UnsafeFileError
from bootstrap.files import (
    is_in_place,
    read_regular,
    require_regular,
    storage_error,
    write_all,
    write_replacing,
)
from bootstrap.logfile import look, read_head, require_agreement
from bootstrap.logread import CLOSING, read_segment, read_tail, verify_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bootstrap.files import Directory
    from bootstrap.logfile import Tail

__all__ = ["CLOSING", "JobLog", "Record", "read_segment", "read_tail", "verify_all"]

TORN_PREFIX: Final = "job-log.torn-"
UNNOTED: Final = ".new"  # ends the name of a quarantined tail that no record names yet
_NEXT_HEAD: Final = ".job-log.head.new"
_LOG_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)


class JobLog:
    """Appends to the job log of one state directory.

    `clock` returns seconds since the epoch; the time in a record is for people.
    """

    def __init__(self, directory: Directory, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock

    def append(self, event: str, /, **fields: object) -> Record:
        """Append one record, durable before the call returns, and return it.

        Appenders exclude each other by a lock on the log file. Only the tail is read. A torn
        last line is moved to a file of its own and noted in a `tail_quarantined` record; a
        head exactly one record behind is repaired and noted in a `head_repaired` record.
        Raises LogChainError where head and tail differ otherwise, StorageError when the record
        could not be made durable (then the log is as it was before, or the next append mends
        it), and ValueError for fields that no line can hold. Whether the caller may append
        at all, it says by holding the workspace lock.
        """
        with open_locked(self._directory) as fd:
            tail = look(self._directory, fd, read_head(self._directory))
            require_agreement(self._directory, tail)
            head = self._mend(fd, tail)
            return self._write(fd, head, event, fields)

    def _mend(self, fd: int, tail: Tail) -> Head:
        head = tail.last
        if tail.end != tail.size:
            _quarantine(self._directory, fd, tail)
        if tail.behind:
            replace_head(self._directory, head)
            head = self._write(fd, head, "head_repaired", {"found_seq": tail.recorded.seq}).head
        for name in _unnoted(self._directory):
            fields = _describe(self._directory, name)
            head = self._write(fd, head, "tail_quarantined", fields).head
            _mark_noted(self._directory, name)
        return head

    def _write(self, fd: int, head: Head, event: str, fields: Mapping[str, object]) -> Record:
        line = encode_record(head, stamp(self._clock()), event, fields)
        record = follow(head, line, str(self._directory.path / LOG_NAME))
        _commit(self._directory, fd, line, head, record.head)
        return record


def stamp(seconds: float) -> str:
    """Return seconds since the epoch as the UTC time of a record (RFC 3339)."""
    whole, micros = divmod(int(seconds * 1_000_000), 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{micros:06d}Z"


@contextmanager
def open_locked(directory: Directory, *, single_link: bool = True) -> Iterator[int]:
    """Open the log, made where there is none, and exclude other appenders while it is open.

    Raises LogChainError for anything but a regular file, and StorageError.
    """
    path = directory.path / LOG_NAME
    fd = _open_or_make(directory, path)
    try:
        try:
            require_regular(fd, path, single_link=single_link)
        except UnsafeFileError as error:
            raise chain_error(str(path), error.expected, error.found) from error
        fcntl.flock(fd, fcntl.LOCK_EX)
        # The lock may have been waited for while `log --seal-broken` put another file there.
        if not is_in_place(fd, directory, LOG_NAME):
            raise chain_error(str(path), "the log that was opened", "another", "run it again")
        yield fd
    finally:
        os.close(fd)


def _open_or_make(directory: Directory, path: Path) -> int:
    try:
        return os.open(LOG_NAME, _LOG_FLAGS, 0o600, dir_fd=directory.fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            found = os.strerror(error.errno)
            raise chain_error(str(path), "a regular file", found) from error
        raise storage_error(path, error) from error


def _commit(directory: Directory, fd: int, line: bytes, before: Head, after: Head) -> None:
    """Make a line durable, then the head that names it; on failure take both back."""
    size = os.fstat(fd).st_size
    try:
        with _staged_head(directory, after) as staged:  # a full disk shows before the line is down
            write_all(fd, line + b"\n")
            os.fsync(fd)
            _put_head(directory, staged)
    except OSError as error:
        _take_back(directory, fd, size, before)
        raise storage_error(directory.path / LOG_NAME, error) from error


def _take_back(directory: Directory, fd: int, size: int, before: Head) -> None:
    # In this order a crash, or a failure here too, leaves what the next append can mend.
    with suppress(OSError, RunnerError):
        if before == GENESIS:
            with suppress(FileNotFoundError):
                os.unlink(HEAD_NAME, dir_fd=directory.fd)
        elif read_head(directory) != before:
            replace_head(directory, before)
        os.ftruncate(fd, size)
        os.fsync(fd)


def replace_head(directory: Directory, head: Head) -> None:
    """Put a head in place of the last one, atomically and durably. Raises StorageError."""
    try:
        with _staged_head(directory, head) as staged:
            _put_head(directory, staged)
    except OSError as error:
        raise storage_error(directory.path / HEAD_NAME, error) from error


@contextmanager
def _staged_head(directory: Directory, head: Head) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(_NEXT_HEAD, flags, 0o600, dir_fd=directory.fd)
    try:
        write_all(fd, encode_head(head))
        yield fd
    finally:
        os.close(fd)


def _put_head(directory: Directory, staged: int) -> None:
    os.fsync(staged)
    rename_durably(directory, _NEXT_HEAD, HEAD_NAME)


def rename_durably(directory: Directory, old: str, new: str) -> None:
    """Rename a file of the state directory over another. Raises OSError."""
    os.replace(old, new, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    os.fsync(directory.fd)


def _quarantine(directory: Directory, fd: int, tail: Tail) -> None:
    """Move what stands behind the last newline to a file of its own."""
    torn = os.pread(fd, tail.size - tail.end, tail.end)
    name = f"{TORN_PREFIX}{sha256(torn).hexdigest()[:16]}{UNNOTED}"
    write_replacing(directory, name, torn)
    try:
        os.ftruncate(fd, tail.end)
        os.fsync(fd)
    except OSError as error:
        raise storage_error(directory.path / LOG_NAME, error) from error


def _unnoted(directory: Directory) -> list[str]:
    names = os.listdir(directory.fd)
    return sorted(n for n in names if n.startswith(TORN_PREFIX) and n.endswith(UNNOTED))


def _describe(directory: Directory, name: str) -> dict[str, object]:
    torn = read_regular(directory, name, 2 * LINE_LIMIT)
    digest = sha256(torn).hexdigest()
    return {"file": name.removesuffix(UNNOTED), "size": len(torn), "sha256": digest}


def _mark_noted(directory: Directory, name: str) -> None:
    try:
        rename_durably(directory, name, name.removesuffix(UNNOTED))
    except OSError as error:
        raise storage_error(directory.path / name, error) from error
