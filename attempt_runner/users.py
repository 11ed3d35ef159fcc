"""Hold a user for one job: no other job may share it, and nothing of it may outlive the job."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.isolate import User
from attempt_runner.leftovers import find_leftovers, kill_user, processes_of, remove_leftovers
from bootstrap.errors import (
    ConfigurationError,
    IntegrityError,
    LockHeldError,
    ProcessesRemainError,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LOCKS: Final = Path("/run/attempt-runner")  # one place a machine, and root's
KILL_SECONDS: Final = 30.0
_LARGEST: Final = 2**31 - 1
_FIELDS: Final = 4  # of passwd(5), up to the group


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A user that this job holds. `inherited` is what a crashed job of ours had left of it."""

    user: User
    keep: tuple[Path, ...]
    inherited: tuple[str, ...]

    def clear(self) -> tuple[str, ...]:
        """Kill what runs as the user and remove what it left; return what that was.

        Everything found is this job's own: the user had nothing when it was taken. Raises
        ProcessesRemainError or IntegrityError (77).
        """
        return _clear(self.user, self.keep)


def resolve_user(text: str) -> User:
    """Return the numbers of a user given by name or number; no passwd entry is needed.

    A number without an entry is its own group. Raises ConfigurationError for root, for an
    unknown name, and when the caller is not root.
    """
    if os.geteuid() != 0:
        raise _refused(text, "root as the runner's user", "another", "leave it out")
    user = _from_number(text) if text.isascii() and text.isdecimal() else _from_passwd(text)
    if user is None or not 0 < user.uid <= _LARGEST or not 0 < user.gid <= _LARGEST:
        raise _refused(text, "a user other than root", "none", "name one that exists, or a number")
    return user


def parse_pool(text: str) -> tuple[User, ...]:
    """Return the users of a pool `A-B`, both numbers included. Raises ConfigurationError."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= _LARGEST):
        raise _refused(text, "two numbers, A-B", "something else", "give --user-pool 2000-2099")
    return tuple(resolve_user(str(number)) for number in range(int(first), int(last) + 1))


def _from_number(text: str) -> User:
    with suppress(OSError), open("/etc/passwd", encoding="utf-8", errors="replace") as entries:
        for line in entries:
            fields = line.split(":")
            if len(fields) > _FIELDS and fields[2] == text and fields[3].isdecimal():
                return User(int(text), int(fields[3]))
    return User(int(text), int(text))


def _from_passwd(name: str) -> User | None:
    import pwd  # noqa: PLC0415 - may ask a directory service: only for a name

    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None
    return User(entry.pw_uid, entry.pw_gid)


def _refused(what: str, expected: str, found: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"user {shown(what)}", expected=expected, found=found, remedy=remedy)


@contextmanager
def hold_user(
    candidates: Iterable[User], keep: Iterable[Path] = (), locks: Path = LOCKS
) -> Iterator[Tenancy]:
    """Hold the first candidate that no other job holds, for as long as the block runs.

    `keep` are paths that may be the user's: the workspace. On the way in the user must have
    no process and no leftover, unless a job of ours crashed while it held the user: then both
    are cleared away and told as `inherited`. On the way out both are cleared.

    Raises LockHeldError (75) when all are held; ProcessesRemainError or IntegrityError (77)
    for a process or leftover that is not ours to remove; ConfigurationError (78) where there
    is no private place for the locks.
    """
    user, fd = _take(tuple(candidates), locks)
    try:
        yield from _occupied(user, fd, tuple(keep))
    finally:
        os.close(fd)


def _occupied(user: User, fd: int, keep: tuple[Path, ...]) -> Iterator[Tenancy]:
    inherited: tuple[str, ...] = ()
    if os.pread(fd, 1, 0):
        inherited = _clear(user, keep)
    else:
        _require_unused(user, keep)
    os.pwrite(fd, b"in use\n", 0)
    try:
        yield Tenancy(user, keep, inherited)
    finally:
        _clear(user, keep)
        os.ftruncate(fd, 0)  # not reached if clearing failed: the next job finds the mark


def _require_unused(user: User, keep: tuple[Path, ...]) -> None:
    if living := processes_of(user.uid):
        raise ProcessesRemainError(
            f"user {user.uid}",
            expected="no process before the job",
            found=", ".join(f"pid {pid}" for pid in living[:8]),
            remedy="stop them, or take a user of its own for each job",
        )
    if left := find_leftovers(user.uid, keep):
        raise IntegrityError(
            f"user {user.uid}",
            expected="nothing of an earlier job",
            found=", ".join(map(str, left[:8])),
            remedy="remove it, or take a user of its own for each job",
        )


def _clear(user: User, keep: tuple[Path, ...]) -> tuple[str, ...]:
    kill_user(user, time.monotonic() + KILL_SECONDS)
    left = find_leftovers(user.uid, keep)
    try:
        remove_leftovers(left, user)
    except OSError as error:
        raise IntegrityError(
            f"what user {user.uid} left",
            expected="to be removed",
            found=str(error),
            remedy="remove it before the next job",
        ) from error
    return tuple(map(str, left))


def _take(candidates: tuple[User, ...], locks: Path) -> tuple[User, int]:
    directory = _open_locks(locks)
    try:
        for user in candidates:
            fd = _lock(directory, f"uid-{user.uid}.lock")
            if fd is not None:
                return user, fd
    finally:
        os.close(directory)
    raise LockHeldError(
        "users " + ", ".join(str(user.uid) for user in candidates[:8]),
        expected="one that no other job holds",
        found="all in use",
        remedy="wait, or name a wider --user-pool",
    )


def _open_locks(path: Path) -> int:
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _no_place(path, os.strerror(error.errno or 0)) from error
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise _no_place(path, f"owner {status.st_uid}, {stat.filemode(status.st_mode)}")
    return fd


def _no_place(path: Path, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"lock directory {path}",
        expected="a directory that only the runner can write",
        found=found,
        remedy="make it root's with mode 0700",
    )


def _lock(directory: int, name: str) -> int | None:
    """Lock a file that nobody but us could have made; None if another holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
