"""Check, before anything starts, that no child could write what judges it."""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.isolate import own_places
from bootstrap.errors import ConfigurationError
from bootstrap.location import locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attempt_runner.isolate import Tier, User

_LINKS: Final = 40  # path_resolution(7): more in one path is a loop
_WRITE: Final = 0o2


def check_apart(state_root: Path, writable: Iterable[Path]) -> None:
    """Refuse a state root that lies in what a child may write, or holds it. Raises 78.

    Compared by real path, by device and inode of every parent, and by place within the
    filesystem: two bind mounts show one directory under two paths.
    """
    for path in writable:
        if _within(state_root, path) or _within(path, state_root):
            raise ConfigurationError(
                f"state directory {state_root}",
                expected="a place apart from all that a child may write",
                found=f"{path}, one of which holds the other",
                remedy="name another with --state-dir",
            )


def check_scratch(scratch: Path, writable: Iterable[Path]) -> None:
    """Refuse a scratch directory in what a child may write, at any tier. Raises 78.

    Its parent's owner could put another exchange directory in the place of the scorer's.
    """
    if why := writable_place(scratch, writable):
        raise ConfigurationError(
            f"scratch directory {scratch}",
            expected="a place that no child can write",
            found=why,
            remedy="name another with --scratch-dir",
        )


def check_single_links(state: Path) -> None:
    """Refuse a state whose files have a second name, which may lie in the workspace. Raises 78."""
    with os.scandir(state) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_nlink != 1:
                raise ConfigurationError(
                    f"state file {entry.path}",
                    expected="one link",
                    found=f"{status.st_nlink} links",
                    remedy="find the other name and remove it",
                )


def check_guarded(
    tier: Tier, guarded: Iterable[Path], writable: Sequence[Path], user: User | None
) -> tuple[Path, ...]:
    """Refuse what judges a child, if the child could write it in this tier. Raises 78.

    `guarded` are the configuration, the prompt, the scorer's program and its files; our own
    interpreter and packages are added. A path counts with every link on its way. Where the
    user is the only barrier, permission bits are judged; access lists are not looked at.
    Under `none` nothing is refused: what could be written is returned, to be recorded.
    """
    found = []
    modules = _own_modules() if tier == "uid" else ()
    for path in (*guarded, Path(sys.executable), *own_places(), *modules):
        why = writable_place(path, writable) or _writable_bits(tier, path, user)
        if not why:
            continue
        if tier != "none":
            raise ConfigurationError(
                str(path),
                expected="a file that no child can write",
                found=why,
                remedy="keep it outside of the workspace, owned by the runner's user",
            )
        found.append(path)
    return tuple(found)


def _own_modules() -> Iterator[Path]:
    package = Path(__file__).resolve().parent
    for directory in (package, package.parent / "bootstrap"):
        yield from directory.rglob("*.py")


def writable_place(path: Path, writable: Iterable[Path]) -> str:
    """Say in which place a path lies, or by which it passes on its way; empty for none."""
    identities = {_identity(place): place for place in writable if place.exists()}
    for step in _steps(path):
        if place := identities.get(_identity(step)):
            return f"in {place}"
    return next((f"in {place}" for place in writable if _within(path, place)), "")


def _writable_bits(tier: Tier, path: Path, user: User | None) -> str:
    if tier == "none":
        return str(path) if os.access(path, os.W_OK) else ""
    if tier != "uid" or user is None or not path.exists():
        return ""
    end = path
    for end in _steps(path):
        if _may_replace(end, user):
            return f"{end.parent}, where user {user.uid} may replace it"
    return f"{end}, which user {user.uid} may write" if _may_write(end, user) else ""


def _may_write(path: Path, user: User) -> bool:
    status = os.stat(path)
    if status.st_uid == user.uid:
        return True  # its owner may change the mode
    if status.st_gid == user.gid:
        return bool(status.st_mode >> 3 & _WRITE)
    return bool(status.st_mode & _WRITE)


def _may_replace(path: Path, user: User) -> bool:
    parent = path.parent
    if not _may_write(parent, user):
        return False
    sticky = os.stat(parent).st_mode & stat.S_ISVTX
    owners = (os.lstat(path).st_uid, os.stat(parent).st_uid)
    return not sticky or user.uid in owners


def _steps(path: Path) -> Iterator[Path]:
    """Yield each file, directory and link that is passed on the way to a path, and its end."""
    parts = deque(Path(os.path.abspath(path)).parts[1:])
    current, links = Path("/"), 0
    while parts:
        name = parts.popleft()
        step = current.parent if name == ".." else current / name
        yield step
        if step.is_symlink() and links < _LINKS:
            links += 1
            target = Path(os.readlink(step))
            if target.is_absolute():
                current, target = Path("/"), target.relative_to("/")
            parts.extendleft(reversed(target.parts))
        else:
            current = step


def _within(path: Path, place: Path) -> bool:
    """Tell whether a path is a place or lies in it, however either is reached."""
    real, real_place = Path(os.path.realpath(path)), Path(os.path.realpath(place))
    if real.is_relative_to(real_place) or path.is_relative_to(place):
        return True
    wanted = _identity(real_place)
    if wanted and wanted in map(_identity, (real, *real.parents)):
        return True
    return _located_within(real, real_place)


def _located_within(path: Path, place: Path) -> bool:
    if sys.platform != "linux" or not (path.exists() and place.exists()):
        return False
    with ExitStack() as opened:
        inner, outer = (os.open(name, os.O_PATH | os.O_CLOEXEC) for name in (path, place))
        opened.callback(os.close, inner)
        opened.callback(os.close, outer)
        return locate(outer).holds(locate(inner))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
