"""Run the canary in a tier, and read off from outside what it could do."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner import canary
from attempt_runner.isolate import PROMISES, enclose
from attempt_runner.leftovers import Segment, remove_leftovers
from attempt_runner.status import status_pipe
from bootstrap.errors import ConfigurationError
from bootstrap.proctable import identify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attempt_runner.isolate import Isolation, Network, Promise, Room, User

SECONDS: Final = 30.0  # a canary needs a tenth of one; a machine may be busy
_MARK: Final = "attempt-canary-"
_PRIVATE: Final = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where and against what to probe.

    `state_root` exists, and the probe makes a directory in it; so it does in `scratch`, where
    the child's exchange directory will be. `sockets` are the control sockets to try.
    """

    state_root: Path
    scratch: Path
    sockets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Setting:
    """What one canary meets: every value is ours, and fresh."""

    state: Path
    home: Path
    mark: str
    sockets: tuple[str, ...]
    ports: tuple[socket.socket, socket.socket] | None


def try_out(draft: Isolation, room: Room, ground: Ground) -> Isolation | str:
    """Return `draft` with the promises that it kept, or why the canary could not run in it."""
    with _setting(room, ground) as setting:
        before = _content(setting.state), _metadata(setting.state)
        worked = _run(draft, room, setting)
        left = _remove_leftovers(setting.mark, room.user)
        if isinstance(worked, str):
            return worked
        if unusable := worked.pop("unusable", None):
            places = [str(room.writable[int(number)]) for number in unusable]
            return f"the child could not write {', '.join(places)}: give it to the child's user"
        worked["leftovers"] = left
        if _content(setting.state) != before[0]:
            worked.setdefault("content", []).append("the state was changed")
        if _metadata(setting.state) != before[1]:
            worked.setdefault("metadata", []).append("mode, time or attribute was changed")
        return _judged(draft, room, setting, worked)


def _judged(
    draft: Isolation, room: Room, setting: _Setting, worked: dict[str, list[str]]
) -> Isolation:
    network = _network(setting, worked)
    notes: dict[Promise, str] = {
        name: ", ".join(worked[name]) for name in PROMISES if worked.get(name)
    }
    if "sockets" in worked:
        reached = [setting.sockets[int(number)] for number in worked["sockets"]]
        notes["sockets"] = ", ".join(reached)
    if network != "off":
        notes["network"] = "on" if room.network else network
    promises = {name: name not in notes for name in PROMISES}
    return replace(draft, promises=promises, notes=notes, network=network)


@contextmanager
def _setting(room: Room, ground: Ground) -> Iterator[_Setting]:
    mark = _MARK + secrets.token_hex(8)
    with ExitStack() as stack:
        state = stack.enter_context(_directory(ground.state_root / f".{mark}", None))
        home = stack.enter_context(_directory(ground.scratch / f"{mark}-home", room.user))
        for name in canary.FILES:
            (state / name).write_bytes(b"state\n")
        ports = None
        if not room.network:
            ports = (stack.enter_context(_listen()), stack.enter_context(_receive()))
        yield _Setting(state, home, mark, ground.sockets, ports)


@contextmanager
def _directory(path: Path, owner: User | None) -> Iterator[Path]:
    """Make a directory for the time of one probe."""
    try:
        os.mkdir(path, _PRIVATE)
        if owner is not None:
            os.chown(path, *owner)
    except OSError as error:
        raise ConfigurationError(
            f"directory {path.parent}",
            expected="one that the runner can write, to probe the isolation",
            found=os.strerror(error.errno or 0),
            remedy="name others with --state-dir and --scratch-dir",
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(f"{path}-gone", ignore_errors=True)  # where the canary can rename it


def _listen() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def _receive() -> socket.socket:
    receiver = socket.socket(type=socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(0)
    return receiver


def _run(draft: Isolation, room: Room, setting: _Setting) -> dict[str, list[str]] | str:
    """Return the attacks that worked by promise, or what went wrong."""
    place = replace(
        room,
        writable=(*room.writable, setting.home),
        readable=(*room.readable, Path(canary.__file__)),
    )
    argv = (draft.python, "-I", "-S", canary.__file__, *_arguments(room, setting))
    with status_pipe() as status:
        launch = enclose(draft, place, argv, status.ends)
        try:
            done = subprocess.run(
                launch.argv,
                cwd="/",
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
                start_new_session=True,
                pass_fds=launch.pass_fds,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        start = status.outcome(launch, done.returncode)
    lines = done.stdout.decode("ascii", "replace").splitlines()
    if start.proof == "no" or lines[-1:] != ["done"]:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return said or start.cause or f"the canary exited {done.returncode}"
    worked: dict[str, list[str]] = {}
    for line in lines[:-1]:
        promise, _, attack = line.partition("\t")
        worked.setdefault(promise, []).append(attack)
    return worked


def _arguments(room: Room, setting: _Setting) -> Iterator[str]:
    runner = identify(os.getpid())
    tcp, udp = (port.getsockname()[1] for port in setting.ports) if setting.ports else (0, 0)
    yield from (str(setting.state), str(setting.home), str(runner.pid), str(runner.start_ticks))
    yield from (str(tcp), str(udp), setting.mark)
    yield from setting.sockets
    yield "--"
    yield from map(str, room.writable)


def _network(setting: _Setting, worked: Mapping[str, list[str]]) -> Network:
    if setting.ports is None or "network" in worked:
        return "on"
    try:
        setting.ports[1].recv(1)
    except BlockingIOError:
        return "off"
    return "tcp-off"


def _content(state: Path) -> dict[str, tuple[int, int, bytes]] | None:
    """Return each file's inode, links and bytes; None if the directory itself is gone."""
    try:
        with os.scandir(state) as entries:
            return {entry.name: _file(entry) for entry in entries}
    except OSError:
        return None


def _file(entry: os.DirEntry[str]) -> tuple[int, int, bytes]:
    status = entry.stat(follow_symlinks=False)
    data = b""
    if entry.is_file(follow_symlinks=False):
        with open(entry.path, "rb") as file:
            data = file.read()
    return status.st_ino, status.st_nlink, data


def _metadata(state: Path) -> tuple[int, int, int, tuple[str, ...]] | None:
    path = state / "metadata"
    try:
        status = os.stat(path)
        return status.st_mode, status.st_mtime_ns, status.st_uid, tuple(os.listxattr(path))
    except OSError:
        return None


def _remove_leftovers(mark: str, user: User | None) -> list[str]:
    """Remove what the canary could leave outside its room, and say where it was."""
    left, key = [], str(canary.ipc_key(mark))
    for place in canary.SCRATCH_PLACES:
        with suppress(FileNotFoundError):
            os.unlink(f"{place}/{mark}")
            left.append(place)
    with suppress(OSError), open("/proc/sysvipc/shm", encoding="ascii") as table:
        rows = [line.split() for line in table]
        for segment in (Segment("shm", int(row[1])) for row in rows if row[0] == key):
            remove_leftovers([segment], user)
            left.append("System V shared memory")
    return left
