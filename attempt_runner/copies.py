"""Private copies of trees: links as links, nothing shared, nothing special, few modes.

A copy holds directories, regular files and links, and of the modes only the owner's execute
bit. No hard link is made, so writing a copy never writes its source. Large files are copied
by `copy_file_range`, which shares blocks where the filesystem can (copy_file_range(2)), and
holes stay holes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.files import CHUNK, storage_error, write_all
from bootstrap.manifest import (
    NO_CONTENT,
    entry_of,
    hash_open,
    read_target,
    refuse_mount,
)
from bootstrap.visit import EVERYTHING, changed, open_node, require_unchanged, unreadable, visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bootstrap.files import Directory
    from bootstrap.manifest import Entry
    from bootstrap.visit import Node, Rules

NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY_MODE: Final = 0o755
_NO_RANGE_COPY: Final = (
    errno.EXDEV,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.EPERM,
)


def file_mode(mode: int) -> int:
    """Return the mode that a copy of a file gets: 0755 if its owner may run it, else 0644."""
    return 0o755 if mode & stat.S_IXUSR else 0o644


def copy_tree(source: Directory, target: Directory, rules: Rules) -> Iterator[Entry]:
    """Copy everything below `source` into an empty directory, and yield the entries copied.

    Excluded paths are copied too, and not yielded. A FIFO, a socket or a device is yielded
    and not made; a mount point is passed over where it is excluded. Files are hashed as they
    are copied. The copy is complete once the iterator is exhausted. Raises TreeError for the
    source and StorageError for the copy.
    """
    levels = _Levels(target)
    try:
        for node in visit(source, rules, enter_excluded=True):
            if node.mount and node.excluded:
                continue
            refuse_mount(node)
            content = _copy(node, levels)
            if not node.excluded:
                yield entry_of(node, content)
    except OSError as error:
        raise storage_error(target.path, error) from error
    finally:
        levels.close()


class _Levels:
    """The open directories of the copy, from its root to where the visit is."""

    def __init__(self, root: Directory) -> None:
        self._fds = [os.dup(root.fd)]

    def at(self, depth: int) -> int:
        """Return the directory that holds the paths of a depth, closing the deeper ones."""
        while len(self._fds) > depth:
            os.close(self._fds.pop())
        return self._fds[-1]

    def enter(self, name: bytes) -> None:
        """Make a directory in the deepest one, and open it."""
        os.mkdir(name, DIRECTORY_MODE, dir_fd=self._fds[-1])
        self._fds.append(os.open(name, DIRECTORY_FLAGS, dir_fd=self._fds[-1]))
        os.fchmod(self._fds[-1], DIRECTORY_MODE)

    def close(self) -> None:
        """Close every directory."""
        while self._fds:
            os.close(self._fds.pop())


def _copy(node: Node, levels: _Levels) -> bytes:
    directory = levels.at(node.depth)
    mode = node.status.st_mode
    if stat.S_ISREG(mode):
        return copy_file(node, directory, node.name)
    if stat.S_ISDIR(mode):
        levels.enter(node.name)
    elif stat.S_ISLNK(mode):
        target = read_target(node)
        os.symlink(target, node.name, dir_fd=directory)
        return target
    return NO_CONTENT


def copy_file(node: Node, directory: int, name: bytes) -> bytes:
    """Copy a visited regular file to a new name in an open directory, and return its sha256.

    Raises TreeError for the source and OSError for the copy.
    """
    source = open_node(node)
    try:
        target = new_file(directory, name, node.status.st_mode)
        try:
            content = copy_content(source, target, node.path, node.status.st_size)
        finally:
            os.close(target)
        require_unchanged(node, source)
        return content
    finally:
        os.close(source)


def new_file(directory: int, name: bytes, mode: int) -> int:
    """Create a file in an open directory with the mode that a copy gets. Raises OSError."""
    fd = os.open(name, NEW_FILE, 0o600, dir_fd=directory)
    os.fchmod(fd, file_mode(mode))  # the umask must not decide
    return fd


def copy_content(source: int, target: int, path: bytes, size: int) -> bytes:
    """Copy `size` bytes between open files, the target being empty; return their sha256.

    Raises TreeError, which names `path`, for a source of another size, and OSError.
    """
    if size < CHUNK:
        return _copy_small(source, target, path, size)
    if os.fstat(source).st_size != size:
        raise changed(path)
    os.ftruncate(target, size)
    for start, end in _data_ranges(source, size):
        _copy_range(source, target, path, start, end)
    return hash_open(target, size)


def _copy_small(source: int, target: int, path: bytes, size: int) -> bytes:
    try:
        data = os.read(source, size + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) != size:
        raise changed(path)
    write_all(target, data)
    return hashlib.sha256(data).hexdigest().encode("ascii")


def _data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are not holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data up to the end
                yield end, size
            return
        yield start, min(end, size)


def _copy_range(source: int, target: int, path: bytes, start: int, end: int) -> None:
    copy = _range_in_kernel if hasattr(os, "copy_file_range") else _range_by_hand
    while start < end:
        try:
            count = copy(source, target, start, end)
        except OSError as error:
            if copy is _range_by_hand or error.errno not in _NO_RANGE_COPY:
                raise
            copy = _range_by_hand
            continue
        if not count:
            raise changed(path)
        start += count


def _range_in_kernel(source: int, target: int, start: int, end: int) -> int:
    return os.copy_file_range(source, target, end - start, start, start)


def _range_by_hand(source: int, target: int, start: int, end: int) -> int:
    data = os.pread(source, min(CHUNK, end - start), start)
    os.lseek(target, start, os.SEEK_SET)
    write_all(target, data)
    return len(data)


def settle(tree: Directory, mode_of: Callable[[int], int]) -> None:
    """Give every directory and file of a private tree the mode that `mode_of` tells.

    Raises OSError, TreeError.
    """
    for node in visit(tree, EVERYTHING):
        if not stat.S_ISLNK(node.status.st_mode):
            os.chmod(node.name, mode_of(node.status.st_mode), dir_fd=node.parent)
    os.fchmod(tree.fd, mode_of(os.fstat(tree.fd).st_mode))
