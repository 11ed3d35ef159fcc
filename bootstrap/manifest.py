"""Manifests: what a tree holds, one line a path, without git.

The *judged* facts of a path are its kind, the owner's execute bit, the set-id bits, and the
sha256 of its content or its link target. Directories, owners and all other mode bits are
recorded and not judged: a clone on another machine has others.

A stored manifest has one line a path, directories included, in the order of the visit:

    <st_mode, octal> <uid> <gid> <size> <content> <path>

`tree_sha256` is the sha256 of the judged lines, directories left out, in the same order:

    <judged mode, octal> <size> <content> <path>

Content is a file's sha256 in hexadecimal, or a link's target; `-` for any other kind. Size
is in bytes, 0 but for files and links. Target and path are percent-encoded (RFC 3986,
section 2.1; unreserved characters and `/` stand for themselves). Each line ends with a
newline. The judged mode of a file is 100755 or 100644, plus its set-id bits; of any other
kind its type bits alone. Siblings are ordered by the bytes of their names, and a directory
comes before what is in it. Times, extended attributes, access lists and hard links are not
recorded.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from bootstrap.errors import TamperedStateError
from bootstrap.files import CHUNK, storage_error
from bootstrap.visit import Rules, TreeError, open_node, require_unchanged, unreadable, visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from bootstrap.files import Directory
    from bootstrap.visit import Node

SET_ID: Final = stat.S_ISUID | stat.S_ISGID
NO_CONTENT: Final = b"-"
_UNRESERVED: Final = re.compile(rb"[\w.~/-]*")  # \w of bytes is ASCII: most names, unchanged
_EXECUTABLE: Final = 0o755
_PLAIN: Final = 0o644


class Entry(NamedTuple):
    """One path of a tree: see the module for what each part means and which are judged."""

    path: bytes
    mode: int
    uid: int
    gid: int
    size: int
    content: bytes

    @property
    def judged_mode(self) -> int:
        """The bits of the mode that a change is judged by."""
        kind = stat.S_IFMT(self.mode)
        if kind != stat.S_IFREG:
            return kind
        permissions = _EXECUTABLE if self.mode & stat.S_IXUSR else _PLAIN
        return kind | self.mode & SET_ID | permissions

    @property
    def is_directory(self) -> bool:
        """Tell a directory, which is recorded and never judged for itself."""
        return stat.S_ISDIR(self.mode)


class Tally:
    """The running digest of a tree: `tree_sha256` once every entry was added."""

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()
        self.paths = 0

    def add(self, entry: Entry) -> None:
        """Add the next entry, in the order of the visit."""
        if not entry.is_directory:
            self._hasher.update(_judged_line(entry))
            self.paths += 1

    @property
    def tree_sha256(self) -> str:
        """The digest of the entries added so far, lower-case hexadecimal."""
        return self._hasher.hexdigest()


def walk(root: Directory, rules: Rules) -> Iterator[Entry]:
    """Yield an entry for every path below `root` that is not excluded, reading every file.

    Raises TreeError for a path that cannot be read, is written meanwhile, is over a limit or
    is a mount point.
    """
    for node in visit(root, rules):
        refuse_mount(node)
        yield describe(node)


def describe(node: Node) -> Entry:
    """Return the entry of a visited path: a file is read, a link's target too, nothing else."""
    mode = node.status.st_mode
    if stat.S_ISREG(mode):
        fd = open_node(node)
        try:
            return entry_of(node, digest_unchanged(node, fd))
        finally:
            os.close(fd)
    return entry_of(node, read_target(node) if stat.S_ISLNK(mode) else NO_CONTENT)


def entry_of(node: Node, content: bytes) -> Entry:
    """Return the entry of a visited path whose content is known."""
    status = node.status
    sized = stat.S_ISREG(status.st_mode)
    size = status.st_size if sized else len(content) * stat.S_ISLNK(status.st_mode)
    return Entry(node.path, status.st_mode, status.st_uid, status.st_gid, size, content)


def read_target(node: Node) -> bytes:
    """Return the target of a visited link. Raises TreeError."""
    try:
        return os.readlink(node.name, dir_fd=node.parent)
    except OSError as error:
        raise unreadable(node.path, error) from error


def digest_unchanged(node: Node, fd: int) -> bytes:
    """Hash an open file that was visited; raise TreeError if anybody wrote it meanwhile."""
    try:
        content = hash_open(fd, node.status.st_size)
    except OSError as error:
        raise unreadable(node.path, error) from error
    require_unchanged(node, fd)
    return content


def hash_open(fd: int, size: int) -> bytes:
    """Hash an open file from its first byte; `size` is what it is expected to hold."""
    hasher = hashlib.sha256()
    os.lseek(fd, 0, os.SEEK_SET)
    want = min(size + 1, CHUNK)  # one byte more: a short file then takes one read and an end
    while data := os.read(fd, want):
        hasher.update(data)
    return hasher.hexdigest().encode("ascii")


def refuse_mount(node: Node) -> None:
    """Raise TreeError for a mount point: what lies in it is not of this tree."""
    if node.mount:
        raise TreeError(node.path, "mount", expected="one filesystem", found="a mount point")


def write_manifest(entries: Iterable[Entry], target: BinaryIO) -> Tally:
    """Write a manifest line by line, and return its tally. Raises OSError, TreeError."""
    tally = Tally()
    for entry in entries:
        target.write(_stored_line(entry))
        tally.add(entry)
    return tally


def save_manifest(directory: Directory, name: str, entries: Iterable[Entry]) -> str:
    """Write a manifest to a file, durable on return, and return its `tree_sha256`.

    Raises StorageError, and TreeError from the entries.
    """
    try:
        with open(name, "wb", opener=_opener(directory)) as target:
            tally = write_manifest(entries, target)
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        raise storage_error(directory.path / name, error) from error
    return tally.tree_sha256


def open_manifest(directory: Directory, name: str) -> BinaryIO:
    """Open a manifest that `save_manifest` wrote. Raises OSError."""
    return open(name, "rb", opener=_opener(directory))


def read_manifest(source: BinaryIO) -> Iterator[Entry]:
    """Yield the entries of a stored manifest. Raises TamperedStateError for a bad line.

    The lines are not proved to be those that were written: compare their tally.
    """
    for line in source:
        try:
            mode, uid, gid, size, content, path = line.removesuffix(b"\n").split(b" ")
            kept = content if stat.S_ISREG(int(mode, 8)) else unquote_to_bytes(content)
            yield Entry(unquote_to_bytes(path), int(mode, 8), int(uid), int(gid), int(size), kept)
        except ValueError as error:
            raise TamperedStateError(
                "manifest",
                expected="lines of six fields",
                found=repr(line[:80]),
                remedy="bootstrap the workspace again",
            ) from error


def _judged_line(entry: Entry) -> bytes:
    return b"%06o %d %s %s\n" % (
        entry.judged_mode,
        entry.size,
        _field(entry),
        _quote(entry.path),
    )


def _stored_line(entry: Entry) -> bytes:
    return b"%06o %d %d %d %s %s\n" % (
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        _field(entry),
        _quote(entry.path),
    )


def _field(entry: Entry) -> bytes:
    return _quote(entry.content) if stat.S_ISLNK(entry.mode) else entry.content


def _quote(data: bytes) -> bytes:
    return data if _UNRESERVED.fullmatch(data) else quote_from_bytes(data).encode("ascii")


def _opener(directory: Directory) -> Callable[[str, int], int]:
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=directory.fd)
