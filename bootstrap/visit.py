"""Visit every path of a tree by descriptor: no link followed, no mount crossed, no file opened.

What is met is told by `lstat` beneath an open directory. A FIFO, a socket or a device is
never opened, and each directory is entered with `O_NOFOLLOW` and compared with what `lstat`
saw, so a tree that is swapped while it is read is an error and never another tree.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.errors import IntegrityError
from bootstrap.files import READ_FLAGS
from bootstrap.mounts import mount_points, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bootstrap.files import Directory

REPOSITORY: Final = b".git"  # the workspace's own, at the top: never part of its content
# What is answered for a path that was there a moment ago, as a file or as a directory.
_SWAPPED: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_PROGRESS_STEP: Final = 4096  # paths between two calls of `progress`


class TreeError(IntegrityError):
    """A path of a tree cannot be recorded; `path` names it and `reason` is one word for why.

    Reasons: `unreadable`, `changed` (while it was read), `mount`, `files`, `bytes`, `depth`
    (over the limit). Who could have made the path decides what follows.
    """

    def __init__(self, path: bytes, reason: str, *, expected: str, found: str) -> None:
        super().__init__(
            f"path {os.fsdecode(path)}",
            expected=expected,
            found=found,
            remedy="repair or remove it, or leave it out with --exclude",
        )
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a tree may be before it is refused, so that reading one ends."""

    files: int = 1_000_000
    size: int = 64 << 30  # bytes of all regular files as `lstat` tells them, holes included
    depth: int = 128  # directories below the root; one descriptor is held open for each


LIMITS: Final = Limits()


def _nothing(_path: bytes) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Rules:
    """What a visit may meet: `exclude` tells the paths that the operator left out.

    An excluded directory is left out with all that is in it. `progress` is told the number
    of paths seen so far, now and then.
    """

    limits: Limits = LIMITS
    exclude: Callable[[bytes], bool] = _nothing
    progress: Callable[[int], object] | None = None


EVERYTHING: Final = Rules()


class Node(NamedTuple):
    """One path as it was met: bytes relative to the root, and its `lstat`.

    `parent` is the open directory that holds `name`, valid until the next node is asked for.
    """

    path: bytes
    name: bytes
    parent: int
    status: os.stat_result
    depth: int
    excluded: bool
    mount: bool


class _Level(NamedTuple):
    fd: int
    prefix: bytes
    names: Iterator[bytes]
    excluded: bool


def visit(root: Directory, rules: Rules, *, enter_excluded: bool = False) -> Iterator[Node]:
    """Yield every path below `root`, parents first, siblings in the order of their bytes.

    The top-level `.git` is passed over. A mount point is yielded and not entered. Excluded
    paths are yielded only with `enter_excluded`. Memory grows with the largest directory,
    descriptors with the depth. Raises TreeError.
    """
    visitor = _Visitor(rules, _mounts_beneath(root), os.fstat(root.fd).st_dev)
    names = visitor.names(root.fd, b"")
    stack = [_Level(os.dup(root.fd), b"", names, excluded=False)]
    try:
        while stack:
            level = stack[-1]
            name = next(level.names, None)
            if name is None:
                os.close(stack.pop().fd)
                continue
            node = visitor.meet(level, name, len(stack))
            if node.excluded and not enter_excluded:
                continue
            yield node
            if stat.S_ISDIR(node.status.st_mode) and not node.mount:
                stack.append(visitor.enter(node))
    finally:
        for level in stack:
            os.close(level.fd)


class _Visitor:
    """The counters and the mount table of one visit."""

    def __init__(self, rules: Rules, mounts: frozenset[bytes] | None, device: int) -> None:
        self._rules = rules
        self._mounts = mounts
        self._device = device
        self._seen = 0
        self._size = 0

    def names(self, fd: int, path: bytes) -> Iterator[bytes]:
        """List a directory, stopping at the limit of paths."""
        names: list[bytes] = []
        limit = self._rules.limits.files - self._seen
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if len(names) >= limit:
                        raise self._over(path, "files", self._rules.limits.files)
                    names.append(os.fsencode(entry.name))
        except OSError as error:
            raise unreadable(path, error) from error
        if not path and REPOSITORY in names:
            names.remove(REPOSITORY)
        names.sort()
        return iter(names)

    def meet(self, level: _Level, name: bytes, depth: int) -> Node:
        """Tell one name of an open directory, opening nothing."""
        path = level.prefix + name
        excluded = level.excluded or self._rules.exclude(path)
        try:
            status = os.lstat(name, dir_fd=level.fd)
        except OSError as error:
            raise unreadable(path, error) from error
        mount = status.st_dev != self._device if self._mounts is None else path in self._mounts
        if not excluded:
            self._count(path, status)
        return Node(path, name, level.fd, status, depth, excluded, mount)

    def enter(self, node: Node) -> _Level:
        """Open a directory that was met."""
        if node.depth > self._rules.limits.depth:
            raise self._over(node.path, "depth", self._rules.limits.depth)
        fd = open_node(node, DIRECTORY_FLAGS)
        try:
            if not os.path.samestat(os.fstat(fd), node.status):
                raise changed(node.path)
            names = self.names(fd, node.path)
        except TreeError:
            os.close(fd)
            raise
        return _Level(fd, node.path + b"/", names, node.excluded)

    def _count(self, path: bytes, status: os.stat_result) -> None:
        self._seen += 1
        if stat.S_ISREG(status.st_mode):
            self._size += status.st_size
        if self._seen > self._rules.limits.files:
            raise self._over(path, "files", self._rules.limits.files)
        if self._size > self._rules.limits.size:
            raise self._over(path, "bytes", self._rules.limits.size)
        if self._rules.progress and self._seen % _PROGRESS_STEP == 0:
            self._rules.progress(self._seen)

    @staticmethod
    def _over(path: bytes, reason: str, limit: int) -> TreeError:
        unit = "levels" if reason == "depth" else reason
        return TreeError(path, reason, expected=f"at most {limit} {unit}", found="more")


def open_node(node: Node, flags: int = READ_FLAGS) -> int:
    """Open what a node names, without following a link. Raises TreeError."""
    try:
        return os.open(node.name, flags, dir_fd=node.parent)
    except OSError as error:
        raise unreadable(node.path, error) from error


def require_unchanged(node: Node, fd: int) -> None:
    """Raise TreeError unless an open file is still what was met, and was not written since."""
    if _stamp(os.fstat(fd)) != _stamp(node.status):
        raise changed(node.path)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    identity = status.st_dev, status.st_ino, status.st_mode
    return (*identity, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def changed(path: bytes) -> TreeError:
    """Return the error for a path that another process changed while it was read."""
    return TreeError(path, "changed", expected="nobody to write it", found="a change while reading")


def unreadable(path: bytes, error: OSError) -> TreeError:
    """Return the error for a path that the system would not show, or that is another now."""
    if error.errno in _SWAPPED:
        return changed(path)
    found = os.strerror(error.errno or 0)
    return TreeError(path, "unreadable", expected="a path that can be read", found=found)


def _mounts_beneath(root: Directory) -> frozenset[bytes] | None:
    """Return the mount points below `root`, relative to it; None where no table tells them.

    A bind mount of one filesystem into itself keeps the device number, and overlay
    filesystems give files other numbers than their directories: only the table is right.
    """
    if sys.platform != "linux":
        return None
    try:
        top = path_of(root.fd).rstrip(b"/") + b"/"
        points = mount_points()
    except OSError:
        return None
    return frozenset(point[len(top) :] for point in points if point.startswith(top))
