"""The diff between two states of the changed files, made by git from objects alone.

Git is fed both states through `fast-import` and compares tree with tree, so it reads neither
the workspace nor a repository in it: no index, no attribute, no hook of the agent's is near.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import stat
import tempfile
from typing import TYPE_CHECKING, Final, NamedTuple

from attempt_runner.restore import tampered
from bootstrap.errors import IntegrityError, UnsafeFileError
from bootstrap.files import CHUNK, open_regular
from bootstrap.visit import TreeError, changed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from attempt_runner.git import Ended, Git
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry

_IMPORT: Final = ("fast-import", "--quiet", "--done")
# The options name what a configuration could change.
_DIFF: Final = (
    "diff-tree",
    "-r",
    "--patch",
    "--binary",
    "--full-index",
    "--no-renames",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_NOT_PLAIN: Final = re.compile(rb"[^ !#-\[\]-~]")  # for git's own quoting of paths


class CaptureError(IntegrityError):
    """The change could not be made into a patch: never to be read as an empty diff.

    `too_large` tells that git met a bound, and so that the change itself is the cause.
    """

    def __init__(self, ended: Ended) -> None:
        super().__init__(
            "capture",
            expected="git to compare two trees",
            found=ended.told,
            remedy="look for free space in the state directory, then start again",
        )
        self.too_large = ended.timed_out or ended.code == -signal.SIGXFSZ


class Side(NamedTuple):
    """One state of the changed files: a name, and the directory that holds their bytes.

    `ours` tells the baseline's copy, which nobody else can write, from the workspace.
    """

    name: str
    root: Directory
    entries: Sequence[Entry]
    ours: bool


def write_diff(git: Git, before: Side, after: Side, patch: int) -> None:
    """Write the diff between two states to an open file. Files and links only.

    Raises TreeError for a file that is not what its entry says, TamperedStateError for one
    of ours, CaptureError where git fails, and OSError.
    """
    with tempfile.TemporaryFile(dir=git.home) as stream:
        for side in (before, after):
            _write_commit(stream, side)
        stream.write(b"done\n")
        stream.seek(0)
        imported = git.run(_IMPORT, work_tree=git.home, stdin=stream.fileno())
    _require(imported)
    trees = [f"refs/heads/{side.name}" for side in (before, after)]
    _require(git.run([*_DIFF, *trees], work_tree=git.home, stdout=patch))


def _require(ended: Ended) -> None:
    if ended.failed:
        raise CaptureError(ended)


def _write_commit(stream: BinaryIO, side: Side) -> None:
    """Write one state as a commit without parent, in the language of git-fast-import(1)."""
    stream.write(b"commit refs/heads/%s\n" % side.name.encode("ascii"))
    stream.write(b"committer attempt-runner <> 0 +0000\ndata 0\n")
    for entry in side.entries:
        if not entry.is_directory:
            mode = b"120000" if stat.S_ISLNK(entry.mode) else b"%06o" % entry.judged_mode
            stream.write(b"M %s inline %s\ndata %d\n" % (mode, _quote(entry.path), entry.size))
            _write_content(stream, side, entry)
            stream.write(b"\n")


def _write_content(stream: BinaryIO, side: Side, entry: Entry) -> None:
    if stat.S_ISLNK(entry.mode):
        stream.write(entry.content)
        return
    try:
        fd = open_regular(side.root, entry.path, single_link=False)
    except UnsafeFileError as error:
        raise _differs(side, entry, error.found) from error
    try:
        if not side.ours:
            _refuse_lent(fd, side, entry)
        content = _copy_hashed(fd, stream, entry)
    finally:
        os.close(fd)
    if content != entry.content:
        raise _differs(side, entry, content.decode("ascii"))


def _refuse_lent(fd: int, side: Side, entry: Entry) -> None:
    """Refuse a hard link to a file of ours, which an agent of another user may not read."""
    status, ours = os.fstat(fd), os.geteuid()
    if status.st_nlink > 1 and status.st_uid == ours != os.fstat(side.root.fd).st_uid:
        raise TreeError(
            entry.path, "links", expected="one link", found="a hard link to a file of the runner's"
        )


def _differs(side: Side, entry: Entry, found: str) -> IntegrityError:
    if not side.ours:
        return changed(entry.path)
    return tampered(entry, found)


def _copy_hashed(fd: int, stream: BinaryIO, entry: Entry) -> bytes:
    """Copy at most what the entry says, since git was told how much follows."""
    hasher = hashlib.sha256()
    left = entry.size
    while left and (data := os.read(fd, min(CHUNK, left))):
        hasher.update(data)
        stream.write(data)
        left -= len(data)
    return hasher.hexdigest().encode("ascii")


def _quote(path: bytes) -> bytes:
    return b'"%s"' % _NOT_PLAIN.sub(lambda match: b"\\%03o" % match[0][0], path)
