"""Isolation tiers: what a child may touch, and the argv that holds it to that.

Pure: nothing here starts a process or changes the machine. Which tier a machine has is found
out in `probe`, by running the very argv built here around a canary.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from attempt_runner import inside
from attempt_runner.status import Launch
from bootstrap.cells import PROCESS_LIMIT
from bootstrap.reaper import cleanup_level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from attempt_runner.status import Status

Tier = Literal["none", "landlock", "bwrap", "uid", "bwrap+landlock", "uid+landlock"]
Promise = Literal[
    "content", "metadata", "reads", "signals", "limits", "sockets", "network", "leftovers"
]
Network = Literal["on", "off", "tcp-off"]

STRONGEST_FIRST: Final[tuple[Tier, ...]] = (
    "bwrap+landlock",
    "bwrap",
    "uid+landlock",
    "uid",
    "landlock",
)
TIERS: Final[tuple[Tier, ...]] = ("none", *STRONGEST_FIRST)
PROMISES: Final[tuple[Promise, ...]] = get_args(Promise)

# Private and empty in a bubblewrap tier: control sockets and other jobs' files lie in them.
_COVERED: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run"))  # noqa: S108 - covered, not used
_DEVICES: Final = tuple(
    Path("/dev", name)
    for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
)
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - POSIX shared memory works nowhere else
_SEARCH: Final = 0o1


class User(NamedTuple):
    """Numbers of the user a child runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one child may touch. Every path is absolute and real: no link on the way.

    `writable` holds the workspace or score directory, HOME, TMPDIR and what the operator
    adds; `readable` what the child needs even where a tier hides its place; `hidden` the
    state root. `cgroup` is a fresh one to start in. Whether a path exists, and whether one
    lies in another, is not checked here: see `layout`.
    """

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    network: bool = True
    user: User | None = None
    cgroup: Path | None = None
    processes: int = PROCESS_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A tier as this machine has it: the tools that make it, and the promises it kept.

    `promises` says of each promise whether it held when it was probed, `notes` why it did
    not. `network` is `tcp-off` where Landlock stops TCP and datagrams pass. `weaker` tells why
    no stronger tier was taken.
    """

    tier: Tier
    python: str
    bwrap: str | None = None
    promises: Mapping[Promise, bool]
    notes: Mapping[Promise, str]
    network: Network = "on"
    cleanup: str
    weaker: str = ""


def unconfined() -> Isolation:
    """Return tier `none`: no promise is kept."""
    return Isolation(
        tier="none",
        python=sys.executable,
        promises=dict.fromkeys(PROMISES, False),
        notes=dict.fromkeys(PROMISES, "not isolated"),
        cleanup=cleanup_level(),
    )


def evidence_of(agent: Isolation | None, scorer: Isolation) -> dict[str, str | bool]:
    """Return what a receipt records of an attempt: flat, by the names that `--require` knows.

    A promise counts as kept only if every child's tier kept it. `agent` is None where the
    runner starts none.
    """
    children = {"scorer": scorer} | ({"agent": agent} if agent else {})
    found: dict[str, str | bool] = {"agent": "absent"}
    for name, isolation in children.items():
        found[name] = "not isolated" if isolation.tier == "none" else "isolated"
        found[f"{name}_tier"] = isolation.tier
        found[f"{name}_network"] = isolation.network
        found[f"{name}_cleanup"] = isolation.cleanup
    for promise in PROMISES:
        found[promise] = all(one.promises.get(promise, False) for one in children.values())
    return found


def enclose(isolation: Isolation, room: Room, argv: tuple[str, ...], status: Status) -> Launch:
    """Return the launch that runs `argv` confined to `room`; tier `none` changes nothing.

    The command keeps the working directory it is started in. It must be started from the
    main thread of this process: the parent-death signal follows the thread.
    """
    if isolation.tier == "none":
        return Launch(argv)
    if "bwrap" in isolation.tier:
        return _by_bwrap(isolation, room, argv, status)
    flags = [("status", status.shim), ("parent", os.getpid()), *_switch_flags(room)]
    if room.user is not None:
        flags.append(("processes", room.processes))
    if "landlock" in isolation.tier:
        flags.extend(_landlock_flags(room, filter(Path.is_dir, [_SHARED_MEMORY])))
        flags.extend(("hide", path) for path in room.hidden)
    return Launch((*_shim(sys.executable, flags), *argv), (status.shim,), shims=1)


def _shim(python: str, flags: Iterable[tuple[str, object]]) -> Iterator[str]:
    yield from (python, "-I", "-S", inside.__file__)
    for name, value in flags:
        yield from (f"--{name}", str(value))
    yield "--"


def _switch_flags(room: Room) -> Iterator[tuple[str, object]]:
    if room.cgroup is not None:
        yield "cgroup", room.cgroup
    if room.user is not None:
        yield "user", f"{room.user.uid}:{room.user.gid}"


def _landlock_flags(room: Room, shared: Iterable[Path]) -> Iterator[tuple[str, object]]:
    yield "landlock", "on" if room.network else "off"
    yield from (("write", path) for path in (*room.writable, *shared))
    yield from (("device", path) for path in (*_DEVICES, *room.devices))


def _by_bwrap(isolation: Isolation, room: Room, argv: tuple[str, ...], status: Status) -> Launch:
    """Return a launch in three steps: become the user, enter bubblewrap, add Landlock inside.

    A Landlock domain may not mount, so bubblewrap cannot come second.
    """
    wrapped: list[str] = []
    pass_fds = [status.bwrap]
    if switch := list(_switch_flags(room)):
        pass_fds.append(status.shim)
        flags = [("status", status.shim), ("parent", os.getpid()), *switch]
        wrapped += _shim(sys.executable, flags)
    wrapped += _bwrap(isolation, room, status.bwrap)
    if "landlock" in isolation.tier:
        pass_fds.append(status.inner_shim)
        flags = [("status", status.inner_shim), ("processes", room.processes)]
        private = filter(Path.is_dir, (*_COVERED[:2], _SHARED_MEMORY))
        flags.extend(_landlock_flags(room, private))
        wrapped += _shim(isolation.python, flags)
    shims = len(pass_fds) - 1
    innermost = "landlock" in isolation.tier
    return Launch((*wrapped, *argv), tuple(pass_fds), shims, reports_exit=not innermost)


def _bwrap(isolation: Isolation, room: Room, status: int) -> Iterator[str]:
    yield from (isolation.bwrap or "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc")
    yield from () if room.network else ("--unshare-net",)
    yield from ("--new-session", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--json-status-fd", str(status))
    yield from _mounts(room)
    yield "--"


def _mounts(room: Room) -> Iterator[str]:
    """Yield the mounts, outer before inner: each covers what stood at its place before."""
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    for path in _COVERED:
        if path.is_dir():
            yield from ("--tmpfs", str(path))
    binds = dict.fromkeys(_bound_back(room), "--ro-bind")
    binds.update(dict.fromkeys(room.devices, "--dev-bind"))
    binds.update(dict.fromkeys(room.writable, "--bind"))
    for path in sorted(binds, key=lambda path: len(path.parts)):
        yield from (binds[path], str(path), str(path))
    for path in room.hidden:
        if can_reach(path, room.user):
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))


def _bound_back(room: Room) -> Iterator[Path]:
    """Yield what must stay readable although a private directory covers its place."""
    resolver = Path(os.path.realpath("/etc/resolv.conf"))
    for path in (*room.readable, *own_places(), resolver, Path("/run/current-system")):
        if not any(path.is_relative_to(place) for place in (*_COVERED, *room.writable)):
            continue
        if path.exists() and can_reach(path, room.user):
            yield path


def own_places() -> tuple[Path, ...]:
    """Return the real paths of our interpreter, its libraries and our two packages."""
    package = Path(os.path.realpath(inside.__file__)).parent
    prefixes = (sys.prefix, sys.base_prefix, sys.base_exec_prefix)
    places = {Path(os.path.realpath(prefix)) for prefix in prefixes}
    return tuple(sorted(places | {package, package.parent / "bootstrap"}))


def can_reach(path: Path, user: User | None) -> bool:
    """Tell whether a user may search every parent of a path; no access list is looked at.

    What it cannot reach it can neither bind nor hide, and need not hide.
    """
    return user is None or all(_may_search(os.stat(parent), user) for parent in path.parents)


def _may_search(status: os.stat_result, user: User) -> bool:
    if status.st_uid == user.uid:
        return bool(status.st_mode >> 6 & _SEARCH)
    if status.st_gid == user.gid:
        return bool(status.st_mode >> 3 & _SEARCH)
    return bool(status.st_mode & _SEARCH)
