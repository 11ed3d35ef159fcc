"""Descend to a directory by descriptor, refusing every way that somebody else could change."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.errors import ConfigurationError
from bootstrap.files import Closing
from bootstrap.mounts import mount_of

LINK_LIMIT: Final = 40  # as the kernel's own (path_resolution(7))
OVERFLOW_UID: Final = 65534  # where /proc does not tell
REMEDY: Final = "repair it, or name another directory with --state-dir"
# To pass through a directory asks for search permission only: /root may be 0711.
PASS_FLAGS: Final = DIRECTORY_FLAGS | getattr(os, "O_PATH", 0)


class Descent(Closing):
    """A walk by descriptor that starts at the root directory.

    `fd` and `path` tell where it stands. `exposed` are the directories on the way that others
    may write and that passed as mount roots: the caller has to keep the agent from them.
    """

    def __init__(self, forbidden: tuple[int, int]) -> None:
        """Start at `/`; `forbidden` is device and inode of the directory not to enter."""
        self.fd = os.open("/", PASS_FLAGS)
        self.path = Path("/")
        self.exposed: list[Path] = []
        self._forbidden = forbidden

    def close(self) -> None:
        """Close the directory that was reached."""
        os.close(self.fd)

    def walk(self, path: Path, *, create: bool) -> None:
        """Go down an absolute path; with `create`, make what is missing, mode 0700.

        Every directory and link on the way belongs to us, to root, or to an owner that this
        user namespace does not map. A directory that others may write has the sticky bit or is
        a mount root. None is the forbidden one. The last component is no link. Raises
        ConfigurationError, and OSError where the system refuses.
        """
        pending, links = _names(path), 0
        while pending:
            name = pending.pop()
            here = self.path.parent if name == ".." else self.path / name
            status = self._status(name, here, create=create)
            _require_owner(status, here)
            if not stat.S_ISLNK(status.st_mode):
                self._enter(name, here)
                continue
            links += 1
            if not pending or links > LINK_LIMIT:
                raise refused(here, "a directory", "a symbolic link")
            pending += self._follow(name)

    def _status(self, name: str, here: Path, *, create: bool) -> os.stat_result:
        try:
            return os.lstat(name, dir_fd=self.fd)
        except FileNotFoundError as error:
            if not create:
                remedy = "run a bootstrap first, or name the right --workspace and --state-dir"
                raise refused(here, "a directory", "nothing there", remedy) from error
        make_durably(name, self.fd)
        return os.lstat(name, dir_fd=self.fd)

    def _follow(self, name: str) -> list[str]:
        target = Path(os.readlink(name, dir_fd=self.fd))
        if target.is_absolute():
            self._move(os.open("/", PASS_FLAGS), Path("/"))
        return _names(target)

    def _enter(self, name: str, here: Path) -> None:
        entered = os.open(name, PASS_FLAGS, dir_fd=self.fd)
        try:
            self._judge(entered, here)
        except BaseException:
            os.close(entered)
            raise
        self._move(entered, here)

    def _judge(self, entered: int, here: Path) -> None:
        status = os.fstat(entered)
        _require_owner(status, here)
        if (status.st_dev, status.st_ino) == self._forbidden:
            raise refused(here, "a place outside the workspace", "the workspace")
        if _others_may_write(status):
            if mount_of(entered) == mount_of(self.fd):
                found = f"mode {stat.S_IMODE(status.st_mode):04o}"
                raise refused(here, "no write permission for others", found)
            self.exposed.append(here)

    def _move(self, fd: int, path: Path) -> None:
        os.close(self.fd)
        self.fd, self.path = fd, path


def make_durably(name: str, parent: int) -> None:
    """Make a directory, mode 0700; one that another process made meanwhile serves as well.

    Its name is durable on return, where the parent may be read. Raises OSError.
    """
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    with suppress(PermissionError):
        _sync(parent)


def _sync(fd: int) -> None:
    readable = os.open(".", DIRECTORY_FLAGS, dir_fd=fd)  # fsync(2) takes no O_PATH descriptor
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def refused(path: Path, expected: str, found: str, remedy: str = REMEDY) -> ConfigurationError:
    """Return the refusal of a place for the state directory."""
    return ConfigurationError(
        f"state directory {path}", expected=expected, found=found, remedy=remedy
    )


def _names(path: Path) -> list[str]:
    return [part for part in reversed(path.parts) if part != path.anchor]


def _require_owner(status: os.stat_result, here: Path) -> None:
    if status.st_uid not in (0, os.geteuid(), overflow_uid()):
        raise refused(here, "our own or root's", f"owner {status.st_uid}")


def _others_may_write(status: os.stat_result) -> bool:
    """Tell whether others may replace what lies in a directory.

    A group of our own number is our private group, which nobody else is in: pam_umask(8)
    goes by the same sign when it sets umask 002.
    """
    if status.st_mode & stat.S_ISVTX:
        return False
    private = status.st_gid == os.getegid() == os.geteuid()
    return bool(status.st_mode & (stat.S_IWOTH if private else stat.S_IWOTH | stat.S_IWGRP))


@cache
def overflow_uid() -> int:
    """Return the uid that stands for an owner whom this user namespace does not map."""
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as setting:
            return int(setting.read())
    except (OSError, ValueError):
        return OVERFLOW_UID
