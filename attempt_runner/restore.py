"""Put paths back as a trusted copy holds them, beneath an open directory.

Every name is reached by descriptor without following a link, so nothing outside the
directory is removed or written, whatever was left in it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attempt_runner.copies import DIRECTORY_MODE, copy_content, new_file
from bootstrap.errors import TamperedStateError
from bootstrap.files import open_directory_beneath, open_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bootstrap.differences import Difference
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry

_STILL_USED: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT)


def restore(root: Directory, copy: Directory, differences: Sequence[Difference]) -> None:
    """Make every path that differs what the copy holds; `before` is the copy's entry.

    A directory that holds excluded paths stays. A special file is removed and never made.
    What is put back belongs to the owner of `root`. Raises OSError, TamperedStateError.
    """
    moved = [one for one in differences if _replaces(one)]
    for one in reversed(moved):  # what is in a directory before the directory
        if one.after:
            _remove(root, one.after)
    for one in moved:
        if one.before:
            put(root, copy, one.before)


def put(root: Directory, copy: Directory, entry: Entry) -> None:
    """Make one path of `root`, where nothing is, as the copy holds it, and its parents.

    Raises OSError, TamperedStateError.
    """
    directory, _, name = entry.path.rpartition(b"/")
    with _enter(root, directory) as parent:
        kind = stat.S_IFMT(entry.mode)
        if kind == stat.S_IFDIR:
            with suppress(FileExistsError):
                os.mkdir(name, DIRECTORY_MODE, dir_fd=parent.fd)
        elif kind == stat.S_IFLNK:
            os.symlink(entry.content, name, dir_fd=parent.fd)
        elif kind == stat.S_IFREG:
            _put_file(parent, name, copy, entry)
        else:
            return
        _give(root, parent, name)


def _replaces(one: Difference) -> bool:
    directories = (
        bool(one.before and one.before.is_directory),
        bool(one.after and one.after.is_directory),
    )
    return one.judged or directories[0] != directories[1]


def _remove(root: Directory, entry: Entry) -> None:
    directory, _, name = entry.path.rpartition(b"/")
    with open_directory_beneath(root, directory) as parent:
        if not entry.is_directory:
            os.unlink(name, dir_fd=parent.fd)
            return
        try:
            os.rmdir(name, dir_fd=parent.fd)
        except OSError as error:
            if error.errno not in _STILL_USED:
                raise


def _enter(root: Directory, path: bytes) -> Directory:
    """Open a directory below `root`, making what is missing of it."""
    try:
        return open_directory_beneath(root, path)
    except FileNotFoundError:
        directory, _, name = path.rpartition(b"/")
        with _enter(root, directory) as parent:
            os.mkdir(name, DIRECTORY_MODE, dir_fd=parent.fd)
            return open_directory_beneath(parent, name)


def _put_file(parent: Directory, name: bytes, copy: Directory, entry: Entry) -> None:
    source = open_regular(copy, entry.path)
    try:
        target = new_file(parent.fd, name, entry.mode)
        try:
            content = copy_content(source, target, entry.path, entry.size)
        finally:
            os.close(target)
    finally:
        os.close(source)
    if content != entry.content:
        raise tampered(entry, content.decode("ascii"))


def tampered(entry: Entry, found: str) -> TamperedStateError:
    """Return the error for a file of a trusted copy that is not what its manifest says."""
    return TamperedStateError(
        f"baseline of {os.fsdecode(entry.path)}",
        expected=entry.content.decode("ascii"),
        found=found,
        remedy="bootstrap the workspace again",
    )


def _give(root: Directory, parent: Directory, name: bytes) -> None:
    owner = os.fstat(root.fd)
    if owner.st_uid != os.geteuid():
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent.fd, follow_symlinks=False)
