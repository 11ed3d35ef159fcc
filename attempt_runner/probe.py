"""Find out by behaviour which tier this machine has, and choose one; fail closed.

A tier is tried with the very argv that will be used: around a canary, with a private state
directory and this process as the runner. What the tier could not stop is read off the state
directory from outside wherever it leaves a trace there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner import inside
from attempt_runner.isolate import (
    PROMISES,
    STRONGEST_FIRST,
    TIERS,
    Isolation,
    can_reach,
    unconfined,
)
from attempt_runner.tryout import try_out
from bootstrap.cells import open_cell
from bootstrap.errors import IsolationError
from bootstrap.freeze import FIXED_PATH
from bootstrap.reaper import cleanup_level

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attempt_runner.isolate import Promise, Room, Tier
    from attempt_runner.tryout import Ground

_REASON: Final = 64  # characters: five reasons must fit into one line
_SYSTEM_PYTHONS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True, slots=True)
class Examined:
    """A tier as it was found: what it keeps, or why it is not to be had."""

    tier: Tier
    isolation: Isolation | None
    why: str = ""


def choose(
    requested: str, room: Room, ground: Ground, required: frozenset[Promise] = frozenset()
) -> Isolation:
    """Return the isolation to use: the tier asked for, or for `auto` the strongest there is.

    Every tier must keep `content`, all of `required`, and the network off if the room has
    none; under `auto` no control socket may be in reach either, and `none` is never taken.
    Starts processes from this thread, which must be the main one; changes nothing but
    directories of its own. Raises IsolationError (78).
    """
    if requested == "auto":
        return _strongest(room, ground, required)
    examined = examine(requested, room, ground)
    needed = required if requested == "none" else required | {"content"}
    if lacking := _lacking(examined, room, needed):
        raise _refused(requested, lacking, "choose another tier with --isolation, see `doctor`")
    return _taken(examined)


def _strongest(room: Room, ground: Ground, required: frozenset[Promise]) -> Isolation:
    weaker: list[str] = []
    for tier in STRONGEST_FIRST:
        examined = examine(tier, room, ground)
        lacking = _lacking(examined, room, required | {"content", "sockets"})
        if not lacking:
            return replace(_taken(examined), weaker="; ".join(weaker))
        weaker.append(f"{tier}: {lacking[:_REASON]}")
    remedy = (
        "see `attempt-runner doctor`; end the server of a socket or accept it with --allow-socket; "
        "as root name others with --agent-user and --scorer-user; "
        "`--isolation none` runs without, tamper-evident only"
    )
    raise _refused("auto", "; ".join(weaker), remedy)


def examine(name: str, room: Room, ground: Ground) -> Examined:
    """Probe one tier. Raises IsolationError for a name that is none."""
    tier = next((tier for tier in TIERS if tier == name), None)
    if tier is None:
        raise _refused(name, "no such tier", f"choose auto or one of {', '.join(TIERS)}")
    if tier == "none":
        return Examined(tier, unconfined())
    bwrap = shutil.which("bwrap", path=FIXED_PATH)
    if why := _why_not(tier, room, bwrap):
        return Examined(tier, None, why)
    draft = Isolation(
        tier=tier,
        python=_python_for(room),
        bwrap=bwrap,
        cleanup=_cleanup(tier, room),
        promises={},
        notes={},
    )
    tried = try_out(draft, room, ground)
    return Examined(tier, None, tried) if isinstance(tried, str) else Examined(tier, tried)


def _why_not(tier: Tier, room: Room, bwrap: str | None) -> str:
    """Say why a tier cannot be had, as far as that is known without trying."""
    root = os.geteuid() == 0
    if sys.platform != "linux":
        return f"not on {sys.platform}"
    if "landlock" in tier and (abi := inside.landlock_abi()) < inside.MINIMUM_ABI:
        return f"the kernel has Landlock ABI {abi}, needed is {inside.MINIMUM_ABI}"
    if "bwrap" in tier and bwrap is None:
        return f"no bwrap in {FIXED_PATH}"
    if "bwrap" in tier and root and room.user is None:
        return "bwrap keeps nothing from real root: name another user"
    if "uid" in tier and room.user is None:
        return "no other user was named" if root else "only root can become another user"
    return ""


def _cleanup(tier: Tier, room: Room) -> str:
    if "bwrap" in tier:
        return "pid-namespace"
    with open_cell(secrets.token_hex(16)) as cell:
        if cell is not None:
            return "cgroup"
    return "uid" if room.user is not None else cleanup_level()


def _python_for(room: Room) -> str:
    """Return an interpreter that the room's user can reach, ours if it can.

    Whether it runs there the canary tells.
    """
    own = Path(os.path.realpath(sys.executable))
    if all(can_reach(path / "lib", room.user) for path in (own, Path(sys.base_prefix))):
        return str(own)
    return next(filter(os.path.exists, _SYSTEM_PYTHONS), str(own))


def _taken(examined: Examined) -> Isolation:
    if examined.isolation is None:
        raise _refused(examined.tier, examined.why, "see `attempt-runner doctor`")
    return examined.isolation


def _lacking(examined: Examined, room: Room, required: Iterable[str]) -> str:
    """Say what a tier lacks of what it must keep; nothing if it keeps all."""
    found = examined.isolation
    if found is None:
        return examined.why
    broken = [name for name in PROMISES if name in required and not found.promises.get(name)]
    if broken:
        return "; ".join(f"{name} not kept ({found.notes.get(name, 'on')})" for name in broken)
    return "the network stays on" if not room.network and found.network == "on" else ""


def _refused(tier: str, found: str, remedy: str) -> IsolationError:
    return IsolationError(
        f"isolation: {tier}", expected="the promises to be kept", found=found, remedy=remedy
    )
