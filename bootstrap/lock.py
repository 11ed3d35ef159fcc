"""The workspace lock: the kernel's lock on a file that is never unlinked."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.errors import (
    ConfigurationError,
    LockHeldError,
    TamperedStateError,
    UnsafeFileError,
)
from bootstrap.files import is_in_place, require_regular, storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bootstrap.files import Directory

LOCK_NAME: Final = "workspace.lock"
# One waiter sees a release after at most this long, so its p95 stays under 30 ms; 40 tries a
# second cost 0.7 % of a CPU where FileLock, which opens the file anew at each try, costs 1.8 %.
POLL_SECONDS: Final = 0.025
REPLACED_LIMIT: Final = 100  # tries to lock a file that somebody keeps replacing
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class HeldLock(NamedTuple):
    """A lock that is held."""

    fd: int
    directory: Directory

    def require_held(self) -> None:
        """Raise TamperedStateError unless the path still names the file that is locked.

        Once somebody unlinked or renamed it, another runner can lock a new one.
        """
        if not is_in_place(self.fd, self.directory, LOCK_NAME):
            found = "another file, or none"
            raise _tampered(self.directory, "the file that is locked", found)


@contextmanager
def hold_lock(
    directory: Directory, wait: float, between: Callable[[], None] = lambda: None
) -> Iterator[HeldLock]:
    """Hold the lock of a state directory, waiting at most `wait` seconds for it.

    `between` is called before every pause; what it raises ends the waiting. Whether the lock
    is free is the kernel's word alone: what the file contains, and whether it was there, means
    nothing. Waiters are served in no order. The descriptor is close-on-exec.
    Raises LockHeldError; TamperedStateError for anything but a regular file of ours with one
    link; ConfigurationError on a filesystem without locks; StorageError.
    """
    fd = _acquire(directory, time.monotonic() + wait, between)
    try:
        yield HeldLock(fd, directory)
    finally:
        # Closing is not enough: a child between fork and exec still shares the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _acquire(directory: Directory, deadline: float, between: Callable[[], None]) -> int:
    for _ in range(REPLACED_LIMIT):
        fd = _open(directory)
        try:
            _wait(fd, directory, deadline, between)
            # Whoever waited for a file that was unlinked or renamed meanwhile holds nothing.
            if is_in_place(fd, directory, LOCK_NAME):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    raise _tampered(directory, "one lock file", f"another one {REPLACED_LIMIT} times")


def _open(directory: Directory) -> int:
    try:
        fd = os.open(LOCK_NAME, _FLAGS, 0o600, dir_fd=directory.fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _tampered(directory, "a regular file", os.strerror(error.errno)) from error
        raise storage_error(directory.path / LOCK_NAME, error) from error
    try:
        _require_ours(fd, directory)
    except TamperedStateError:
        os.close(fd)
        raise
    return fd


def _require_ours(fd: int, directory: Directory) -> None:
    try:
        owner = require_regular(fd, directory.path / LOCK_NAME).st_uid
    except UnsafeFileError as error:
        raise _tampered(directory, error.expected, error.found) from error
    if owner != os.geteuid():
        raise _tampered(directory, "a file of ours", f"owner {owner}")


def _wait(fd: int, directory: Directory, deadline: float, between: Callable[[], None]) -> None:
    # Brought in here, since it costs more than two bare interpreter starts. It is the lock of
    # `FileLock(fallback_to_soft=False)`, on a descriptor of our own opening: never the soft kind.
    from filelock import lock_descriptor  # noqa: PLC0415 - see above

    try:
        while not lock_descriptor(fd, blocking=False):
            between()
            left = deadline - time.monotonic()
            if left <= 0:
                raise _held(fd, directory)
            time.sleep(min(POLL_SECONDS, left))
    except OSError as error:
        raise ConfigurationError(
            str(directory.path / LOCK_NAME),
            expected="a filesystem that can lock",
            found=os.strerror(error.errno or errno.EIO),
            remedy="name a directory on a local filesystem with --state-dir",
        ) from error


def _held(fd: int, directory: Directory) -> LockHeldError:
    return LockHeldError(
        str(directory.path / LOCK_NAME),
        expected="no other runner in this workspace",
        found=f"the lock held by {name_holder(fd)}",
        remedy="wait for it with --wait SECONDS, or start again later",
    )


def name_holder(fd: int) -> str:
    """Name the process that holds the lock, as far as the kernel tells this namespace."""
    status = os.fstat(fd)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    file = f"{device}:{status.st_ino}"
    with suppress(OSError), open("/proc/locks", encoding="ascii") as table:
        for line in table:
            words = line.split()
            if words[1] == "FLOCK" and words[5] == file:
                return f"process {words[4]}"
    return "another process"


def _tampered(directory: Directory, expected: str, found: str) -> TamperedStateError:
    return TamperedStateError(
        str(directory.path / LOCK_NAME),
        expected=expected,
        found=found,
    )
