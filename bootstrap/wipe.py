"""Clear score paths and prove them absent, before an agent runs and again before a scorer.

Each path is checked, opened by its parent beneath the workspace descriptor, cleared there, and
in the end looked up afresh. Whatever cannot be done or proved is a WipeError: a wipe that
returns has left nothing at any path. Hard links lose a name; no file is opened or changed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.errors import WipeError
from bootstrap.files import AgentPath, Directory, make_directory, open_directory_beneath
from bootstrap.mounts import mount_points, path_of
from bootstrap.removal import cannot_rename, empty, remove, rename_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TRASH_PREFIX: Final = b".attempt-trash-"
_TRASH_NAME: Final = re.compile(re.escape(TRASH_PREFIX.decode()) + "[0-9a-f]{32}")
_UNMOUNT: Final = "unmount it; a score path that is itself a mount needs --score-mount"
_REMOVE: Final = "remove it as its owner, and .attempt-trash-* beside it, then start again"
_FOUND: Final = {
    errno.EXDEV: "a mount",
    errno.EBUSY: "a mount, or a directory in use by the system",
    errno.ELOOP: "a parent that is a link",
    errno.ENOTDIR: "a parent that is a link or no directory",
    errno.ENOTEMPTY: "a process that keeps adding to it",
}


@dataclass(frozen=True, slots=True)
class Wiped:
    """One score path that is absent now (a mount: empty), and what was there before."""

    path: AgentPath
    existed: bool
    entries: int  # files and directories removed: with the path itself, unless it is a mount


def wipe(
    workspace: Directory, paths: Sequence[AgentPath], *, empty_mounts: bool = False
) -> tuple[Wiped, ...]:
    """Remove whatever is at each path, and prove that nothing is there; one Wiped a path.

    `paths` come from `scorepath.check_score_path`; a path whose parent is missing is absent.

    1. Every path is looked at before the first change, so that a refusal leaves the trees in
       place: its parent must be a directory reached through no link and no mount, and the
       mount table must show no mount at it or beneath it. With `empty_mounts` a path that is
       a mounted directory is emptied where it is.
    2. A directory is renamed into a fresh private directory beside it, so that a crash leaves
       no half of a score, and removed from there. Where it cannot be renamed it is removed
       in place.
    3. Every path is looked up afresh from the workspace, and must be missing.

    A mount that appears, or is renamed into a path, between 1 and 2 stops the removal at its
    edge: what is mounted is never entered. Off Linux, where there is no table, that is the
    only check. Raises WipeError.
    """
    with _wiping("mount table"):
        points = mount_points()
    victims = [_look(workspace, path, points, empty_mounts=empty_mounts) for path in paths]  # 1
    wiped = tuple(_clear(workspace, victim) for victim in victims)  # 2
    for victim in victims:  # 3
        _prove_absent(workspace, victim)
    return wiped


def remove_trash(workspace: Directory, paths: Sequence[AgentPath]) -> int:
    """Remove what a killed wipe left beside score paths; return how many entries that were.

    Whatever has such a name goes, of whatever kind: nobody else has a use for it. Raises
    WipeError, as `wipe`.
    """
    with _wiping("mount table"):
        points = mount_points()
    removed = 0
    for path in paths:
        with _wiping(_label(path)), _parent_of(workspace, path) as parent:
            if parent is None:
                continue
            for name in _trash_in(parent):
                _refuse_mounts(path, _mounts_in(parent, name, points))
                removed += remove(parent.fd, name)
    return removed


def remove_tree(parent: Directory, name: str | bytes) -> int:
    """Remove what `name` is in `parent`; return how many entries that were, 0 for nothing.

    For trees of our own, however deep or wide a child made them: no link is followed, no
    mount entered. Raises WipeError.
    """
    with _wiping(str(parent.path / os.fsdecode(name))):
        return remove(parent.fd, os.fsdecode(name))


@dataclass(frozen=True, slots=True)
class _Victim:
    path: AgentPath
    existed: bool
    is_mount: bool  # to be emptied where it is


def _look(
    workspace: Directory, path: AgentPath, points: Sequence[bytes], *, empty_mounts: bool
) -> _Victim:
    with _wiping(_label(path)), _parent_of(workspace, path) as parent:
        mode = _mode(parent, _name(path))
        if parent is None or mode is None:
            return _Victim(path, existed=False, is_mount=False)
        mounts = _mounts_in(parent, _name(path), points)
    is_mount = empty_mounts and b"" in mounts and stat.S_ISDIR(mode)
    _refuse_mounts(path, [point for point in mounts if point or not is_mount])
    return _Victim(path, existed=True, is_mount=is_mount)


def _clear(workspace: Directory, victim: _Victim) -> Wiped:
    name = _name(victim.path)
    with _wiping(_label(victim.path)), _parent_of(workspace, victim.path) as parent:
        if parent is None:
            entries = 0
        elif victim.is_mount:
            entries = _empty_mount(parent, name)
        elif stat.S_ISDIR(_mode(parent, name) or 0):
            entries = _remove_through_trash(parent, name)
        else:
            entries = remove(parent.fd, name)
    return Wiped(victim.path, victim.existed, entries)


def _empty_mount(parent: Directory, name: str) -> int:
    fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent.fd)  # the one crossing that was asked for
    try:
        return empty(fd)
    finally:
        os.close(fd)


def _remove_through_trash(parent: Directory, name: str) -> int:
    trash = os.fsdecode(TRASH_PREFIX) + secrets.token_hex(16)
    try:
        with make_directory(parent, trash) as opened:
            rename_directory(parent.fd, name, opened.fd, "0")
    except OSError as error:
        with suppress(OSError):
            os.rmdir(trash, dir_fd=parent.fd)
        if not cannot_rename(error):
            raise
        return remove(parent.fd, name)
    return remove(parent.fd, trash) - 1


def _prove_absent(workspace: Directory, victim: _Victim) -> None:
    if victim.is_mount:  # `empty` saw it empty
        return
    with _wiping(_label(victim.path)), _parent_of(workspace, victim.path) as parent:
        mode = _mode(parent, _name(victim.path))
    if mode is not None:
        raise WipeError(
            _label(victim.path),
            expected="nothing there after the wipe",
            found=f"{stat.filemode(mode)} there again",
            remedy="stop the process that writes it",
        )


def _parent_of(workspace: Directory, path: AgentPath) -> AbstractContextManager[Directory | None]:
    """Open the directory that holds a path; None where that is missing. Raises OSError."""
    try:
        return open_directory_beneath(workspace, path.rpartition(b"/")[0])
    except FileNotFoundError:
        return nullcontext()


def _name(path: AgentPath) -> str:
    return os.fsdecode(path.rpartition(b"/")[2])


def _mode(parent: Directory | None, name: str) -> int | None:
    """Return the type and permissions of a name, None only if it is proved missing."""
    if parent is None:
        return None
    try:
        return os.lstat(name, dir_fd=parent.fd).st_mode
    except FileNotFoundError:
        return None


def _trash_in(parent: Directory) -> list[str]:
    with os.scandir(parent.fd) as entries:
        return [entry.name for entry in entries if _TRASH_NAME.fullmatch(entry.name)]


def _mounts_in(parent: Directory, name: str, points: Sequence[bytes]) -> list[bytes]:
    """Return the mount points beneath a name, relative to it; empty bytes for its own."""
    if not points:
        return []
    top = os.path.join(path_of(parent.fd), os.fsencode(name))
    return [point[len(top) :] for point in points if (point + b"/").startswith(top + b"/")]


def _refuse_mounts(path: AgentPath, mounts: Sequence[bytes]) -> None:
    for point in mounts:
        raise WipeError(
            _label(path),
            expected="no mount at it or beneath it",
            found=f"a mount at {os.fsdecode(path + point)}",
            remedy=_UNMOUNT,
        )


@contextmanager
def _wiping(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        at = f" at {os.fsdecode(error.filename)}" if error.filename else ""
        found = _FOUND.get(error.errno or 0, os.strerror(error.errno or errno.EIO))
        raise WipeError(
            what,
            expected="to be removed and proved absent",
            found=found + at,
            remedy=_UNMOUNT if error.errno in (errno.EXDEV, errno.EBUSY) else _REMOVE,
        ) from error


def _label(path: AgentPath) -> str:
    return f"score path {os.fsdecode(path)}"
