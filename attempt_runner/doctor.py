"""Survey a machine: each tier, each promise kept or not, and what the tiers rest on."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from attempt_runner import inside
from attempt_runner.isolate import PROMISES, STRONGEST_FIRST, Room
from attempt_runner.probe import choose, examine
from attempt_runner.sockets import control_sockets
from attempt_runner.tryout import Ground
from bootstrap.cells import open_cell
from bootstrap.errors import ConfigurationError, IsolationError
from bootstrap.freeze import FIXED_PATH
from bootstrap.reaper import cleanup_level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from attempt_runner.isolate import User
    from attempt_runner.probe import Examined

NESTED: Final = (
    "a tool that brings its own sandbox with bwrap fails under every landlock tier: Landlock "
    "allows no mounts; ask for --isolation bwrap, or turn the tool's own sandbox off"
)
_VERSION_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found: the tiers strongest first, what `auto` takes, and facts by name."""

    tiers: tuple[Examined, ...]
    auto: str
    facts: Mapping[str, object]

    def as_document(self) -> dict[str, object]:
        """Return it as one JSON object."""
        return {
            "auto": self.auto,
            "facts": dict(self.facts),
            "notes": [NESTED],
            "tiers": {examined.tier: _tier(examined) for examined in self.tiers},
        }


def survey(
    environ: Mapping[str, str],
    *,
    user: User | None,
    state_root: Path | None,
    scratch: Path,
    allowed_sockets: tuple[str, ...] = (),
) -> Survey:
    """Probe every tier, as the agent's user if one is given, with the network off and on.

    Without a state root, or before the first job made it, the probe makes a directory beneath
    `scratch` in its stead. Raises ConfigurationError (78) where neither can be written.
    """
    with _places(state_root, scratch, user) as (state, workspace):
        room = Room(writable=(workspace,), hidden=(state,), network=False, user=user)
        sockets = control_sockets(environ, allowed_sockets)
        ground = Ground(state_root=state, scratch=scratch, sockets=sockets)
        tiers = tuple(examine(tier, room, ground) for tier in STRONGEST_FIRST)
        return Survey(tiers, _auto(replace(room, network=True), ground), _facts(sockets))


def _auto(room: Room, ground: Ground) -> str:
    try:
        return choose("auto", room, ground).tier
    except IsolationError as error:
        return f"none to be had: {error.found}"


@contextmanager
def _places(
    state_root: Path | None, scratch: Path, user: User | None
) -> Iterator[tuple[Path, Path]]:
    own = scratch / f"attempt-doctor-{secrets.token_hex(16)}"
    try:
        os.mkdir(own, 0o711)
    except OSError as error:
        raise ConfigurationError(
            f"scratch directory {scratch}",
            expected="one that the runner can write",
            found=os.strerror(error.errno or 0),
            remedy="name another with --scratch-dir",
        ) from error
    try:
        state, workspace = own / "state", own / "workspace"
        for path in (state, workspace):
            os.mkdir(path, 0o700)
        if user is not None:
            os.chown(workspace, *user)
        yield (state_root if state_root and state_root.is_dir() else state), workspace
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _facts(sockets: tuple[str, ...]) -> dict[str, object]:
    with open_cell(secrets.token_hex(16)) as cell:
        has_cgroup = cell is not None
    return {
        "kernel": os.uname().release,
        "uid": os.geteuid(),
        "python": sys.executable,
        "landlock_abi": inside.landlock_abi() if sys.platform == "linux" else 0,
        "bwrap": _bwrap(),
        "cgroup": has_cgroup,
        "cleanup": cleanup_level(),
        "control_sockets": list(sockets),
    }


def _bwrap() -> str:
    path = shutil.which("bwrap", path=FIXED_PATH)
    if path is None:
        return "missing"
    done = subprocess.run(
        [path, "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_VERSION_SECONDS,
        check=False,
    )
    return f"{path}, {done.stdout.decode('ascii', 'replace').strip()}"


def _tier(examined: Examined) -> dict[str, object]:
    found = examined.isolation
    if found is None:
        return {"available": False, "why": examined.why}
    return {
        "available": True,
        "cleanup": found.cleanup,
        "network_off": found.network,
        "promises": {name: found.promises[name] for name in PROMISES},
        "notes": dict(found.notes),
    }
