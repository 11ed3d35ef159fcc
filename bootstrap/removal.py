"""Remove trees beneath a descriptor, whatever an agent built in them.

A tree is flattened: directories that lie deep are renamed up into the tree's own top, so that
depth, open descriptors and memory stay small. What cannot be renamed (a directory of a lower
overlay layer, another quota, a full disk) is emptied where it is, by going down and up.

Nothing outside the tree is touched while another process rebuilds it: every name is one
component beneath an open directory, no file is opened or has its mode changed, a directory is
entered across no link and no mount, and `..` is taken only if it is the directory we came from.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import Final, NamedTuple

from bootstrap.beneath import DIRECTORY_FLAGS, open_at

# A directory of mode 0000 can be opened as a path only, and by that have its mode changed.
_PATH_FLAGS: Final = DIRECTORY_FLAGS | getattr(os, "O_PATH", 0)
# A filesystem may skip entries while others are unlinked, and a process that is still alive
# may add some: a directory is listed again until it is empty, but not for ever.
_PASSES: Final = 64
_NESTED: Final = 8  # levels that are entered by nesting calls: two descriptors each
_CANNOT_RENAME: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSPC, errno.EDQUOT}
)


def cannot_rename(error: OSError) -> bool:
    """Tell whether a rename failed for a reason that does not stop deletion in place."""
    return error.errno in _CANNOT_RENAME


def rename_directory(source: int, name: str, target: int, new_name: str) -> None:
    """Rename a directory from one open directory to another. Raises OSError.

    A directory of ours without the write permission that moving it asks for is given it.
    """
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError as error:
        if error.errno != errno.EACCES:
            raise
        os.close(_enter(source, name))
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def remove(parent: int, name: str) -> int:
    """Remove what `name` is in an open directory; return how many entries that were.

    Nothing there is 0 entries. Raises OSError: EXDEV or EBUSY for a mount, ENOTEMPTY if
    another process keeps filling the tree.
    """
    try:
        status = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        return _unlink(parent, name)
    top = _enter(parent, name)
    try:
        removed = empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)
    return removed + 1


def empty(top: int) -> int:
    """Remove everything in an open directory and see it empty; return how many entries.

    Raises OSError, as `remove`.
    """
    tree = _Tree(top)
    for _ in range(_PASSES):
        tree.clear()
        with os.scandir(top) as entries:
            if next(entries, None) is None:
                return tree.removed
    raise _still_filled()


class _Level(NamedTuple):
    name: str
    identity: tuple[int, int]
    left: list[str]  # subdirectories that cannot be renamed


class _Tree:
    """One tree being flattened: its top, and the names of ours that are in use there."""

    def __init__(self, top: int) -> None:
        self.removed = 0
        self._top = top
        self._mark = secrets.token_hex(16)  # nobody can have taken, or foresee, these names
        self._first = 0  # `mark + number`, from the first up to the last, are directories
        self._last = 0  # that were renamed up and are still to be removed

    def clear(self) -> None:
        """Remove what a listing of the top shows, and all that was renamed up to it."""
        self._clear_directory(self._top, 0)
        while self._first < self._last:
            self._remove_directory(self._top, f"{self._mark}{self._first}", 0)
            self._first += 1

    def _remove_directory(self, parent: int, name: str, depth: int) -> None:
        fd = _enter(parent, name)
        try:
            for _ in range(_PASSES):
                self._clear_directory(fd, depth)
                if self._rmdir(parent, name):
                    return
        finally:
            os.close(fd)
        raise _still_filled()

    def _clear_directory(self, fd: int, depth: int) -> None:
        left = self._sweep(fd, depth)
        if left:
            self._descend(fd, left)

    def _sweep(self, fd: int, depth: int) -> list[str]:
        """Remove what a listing shows; return the directories that must be removed in place."""
        left = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    self.removed += _unlink(fd, entry.name)
                elif entry.name.startswith(self._mark):
                    continue  # in the top: renamed up meanwhile, its turn comes
                elif depth < _NESTED:
                    self._remove_directory(fd, entry.name, depth + 1)
                elif not self._rename_up(fd, entry.name):
                    left.append(entry.name)
        return left

    def _rename_up(self, fd: int, name: str) -> bool:
        try:
            rename_directory(fd, name, self._top, f"{self._mark}{self._last}")
        except OSError as error:
            if not cannot_rename(error):
                raise
            return False
        self._last += 1
        return True

    def _descend(self, fd: int, left: list[str]) -> None:
        """Remove directories where they are, with one descriptor however deep they lie."""
        levels = [_Level("", _identity(fd), left)]
        current = os.dup(fd)
        try:
            while len(levels) > 1 or levels[-1].left:
                if levels[-1].left:
                    name = levels[-1].left.pop()
                    current = _exchange(current, _enter(current, name))
                    left = self._sweep(current, _NESTED)
                    levels.append(_Level(name, _identity(current), left))
                else:
                    name = levels.pop().name
                    current = _exchange(current, _leave(current, levels[-1].identity))
                    if not self._rmdir(current, name):
                        raise _still_filled()
        finally:
            os.close(current)

    def _rmdir(self, parent: int, name: str) -> bool:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
        self.removed += 1
        return True


def _still_filled() -> OSError:
    return OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _unlink(parent: int, name: str) -> int:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:  # a listing may show what is gone already
        return 0
    return 1


def _enter(parent: int, name: str) -> int:
    """Open a directory, giving its owner the permissions that emptying it asks for."""
    try:
        fd = open_at(parent, name, DIRECTORY_FLAGS)
    except PermissionError:
        with suppress(OSError):  # the second attempt has the better error
            _permit(parent, name)
        fd = open_at(parent, name, DIRECTORY_FLAGS)
    with suppress(PermissionError):  # not ours to change: its own mode may do
        if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(fd, stat.S_IRWXU)
    return fd


def _permit(parent: int, name: str) -> None:
    fd = open_at(parent, name, _PATH_FLAGS)
    try:
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IRWXU)  # fchmod refuses such a descriptor
    finally:
        os.close(fd)


def _leave(fd: int, identity: tuple[int, int]) -> int:
    parent = os.open("..", DIRECTORY_FLAGS, dir_fd=fd)
    if _identity(parent) != identity:
        os.close(parent)
        raise OSError(errno.ESTALE, "a directory was moved while it was emptied")
    return parent


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new
