"""What a user leaves on a machine: processes, files in shared places, System V IPC, timers."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ProcessesRemainError
from bootstrap.files import open_directory
from bootstrap.proctable import all_processes
from bootstrap.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from attempt_runner.isolate import User

# Where every user may make files, or where a timer's file belongs to who set it.
_PLACES: Final = tuple(
    Path(place)
    for place in (
        *("/tmp", "/var/tmp", "/dev/shm"),  # noqa: S108 - looked through, not used
        *("/dev/mqueue", "/run/lock", "/run/user"),
        *("/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/cron/tabs"),
        *("/var/spool/at", "/var/spool/at/spool"),
        *("/var/spool/cron/atjobs", "/var/spool/cron/atspool"),
    )
)
_IPC_TABLES: Final = {"shm": "shmctl", "sem": "semctl", "msg": "msgctl"}
_IPC_RMID: Final = 0
_OTHERS_WRITE: Final = 0o2
_ROUND: Final = 1.0  # seconds for what is done as a user, before it is done again
_PAUSE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Segment:
    """A System V object: its kind (`shm`, `sem`, `msg`) and number."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"System V {self.kind} {self.number}"


def processes_of(uid: int) -> list[int]:
    """Return the pids of living processes that are a user's by any of its four user ids."""
    return [
        process.id.pid
        for process in all_processes()
        if process.alive and uid in _user_ids(process.id.pid)
    ]


def _user_ids(pid: int) -> Iterable[int]:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Uid:"):
                return [int(number) for number in line.split()[1:]]
    return ()


def kill_user(user: User, deadline: float) -> None:
    """Kill every process of a user until none is left; only root can.

    `deadline` is an instant of `time.monotonic()`. A process that becomes the user signals
    all that it may: the kernel does that in one go, so a fork bomb cannot outrun it. Raises
    ProcessesRemainError when the deadline passes first.
    """
    while living := processes_of(user.uid):
        if time.monotonic() >= deadline:
            raise ProcessesRemainError(
                f"user {user.uid}",
                expected="no process",
                found=", ".join(f"pid {pid}" for pid in living[:8]),
                remedy="hold the machine and look for what keeps them",
            )
        _as_user(user, partial(os.kill, -1, signal.SIGKILL))


def _as_user(user: User, action: Callable[[], object]) -> bool:
    """Do something in a process that is a user; tell whether it went well."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    patience = time.monotonic() + _ROUND
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() >= patience:  # another process of the user's stopped it
            os.kill(child, signal.SIGKILL)
        time.sleep(_PAUSE)
    return ended[1] == 0


def find_leftovers(uid: int, keep: Iterable[Path] = ()) -> list[Path | Segment]:
    """Return what a user owns in shared places, but for `keep` and what holds or lies in it.

    A directory is looked into only if all may write it: in no other could the user have made
    anything that is not beneath something of its own.
    """
    kept = [Path(os.path.realpath(path)) for path in keep]
    found: list[Path | Segment] = []
    places = [place for place in _PLACES if place.is_dir() and not place.is_symlink()]
    while places:
        place = places.pop()
        for path, status in _entries(place):
            if status.st_uid == uid and not any(_related(path, other) for other in kept):
                found.append(path)
            elif stat.S_ISDIR(status.st_mode) and status.st_mode & _OTHERS_WRITE:
                places.append(path)
    return [*sorted(set(found), key=str), *_segments_of(uid)]


def _entries(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                yield place / entry.name, entry.stat(follow_symlinks=False)


def _related(path: Path, other: Path) -> bool:
    return path.is_relative_to(other) or other.is_relative_to(path)


def _segments_of(uid: int) -> Iterator[Segment]:
    """Yield System V objects by proc_sysvipc(5): the number is column 2, `uid` is named."""
    for kind in _IPC_TABLES:
        with suppress(OSError), open(f"/proc/sysvipc/{kind}", encoding="ascii") as table:
            heads = next(table).split()
            for line in table:
                fields = dict(zip(heads, line.split(), strict=False))
                if str(uid) in (fields["uid"], fields["cuid"]):
                    yield Segment(kind, int(line.split()[1]))


def remove_leftovers(found: Iterable[Path | Segment], user: User | None) -> None:
    """Remove what `find_leftovers` found of a user, None for our own. Raises OSError.

    The user must have no process any more: nothing moves meanwhile, and a parent is root's or
    sticky, so no name can have become another's. System V objects are removed as the user,
    since a container's root often lacks the capability.
    """
    for item in found:
        if isinstance(item, Segment):
            _remove_segment(item, user)
        else:
            with open_directory(item.parent) as parent:
                remove(parent.fd, item.name)


def _remove_segment(segment: Segment, user: User | None) -> None:
    if user is None:
        _control_segment(segment)
    elif not _as_user(user, partial(_control_segment, segment)):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(segment))


def _control_segment(segment: Segment) -> None:
    control = getattr(ctypes.CDLL(None, use_errno=True), _IPC_TABLES[segment.kind])
    before_command = (0,) if segment.kind == "sem" else ()
    if control(segment.number, *before_command, _IPC_RMID, None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(segment))
