"""Control groups for children: one write kills all in it, and it limits how many there are."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ProcessesRemainError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESS_LIMIT: Final = 4096  # stops a fork bomb, not a parallel build

_KILL_SECONDS: Final = 30.0
_PAUSE: Final = 0.002
_PREFIX: Final = "attempt-"


@contextmanager
def open_cell(name: str, processes: int = PROCESS_LIMIT) -> Iterator[Path | None]:
    """Make a version 2 cgroup below our own for the time of one child; None if there is none.

    `name` is not in use, and lets `find_cell` find it after a crash. On the way out all in it
    is killed, and it is gone. Limits the number of processes where that controller is there.
    Raises ProcessesRemainError (77).
    """
    cell = _make(name, processes)
    try:
        yield cell
    finally:
        if cell is not None:
            close_cell(cell)


def find_cell(name: str) -> Path | None:
    """Return the cgroup that a crashed runner made below what is our cgroup too, if any."""
    parent = own_cgroup()
    cell = parent / (_PREFIX + name) if parent else None
    return cell if cell and cell.is_dir() else None


def _make(name: str, processes: int) -> Path | None:
    parent = own_cgroup()
    if parent is None:
        return None
    cell = parent / (_PREFIX + name)
    try:
        os.mkdir(cell)
    except OSError:
        return None
    if not (cell / "cgroup.kill").exists() or not _can_join(cell):  # before Linux 5.14
        os.rmdir(cell)
        return None
    with suppress(OSError):  # the controller is not handed down to us
        (cell / "pids.max").write_text(str(processes), encoding="ascii")
    return cell


def _can_join(cell: Path) -> bool:
    """Tell whether a child of ours may join: permissions are those of the common parent too."""
    child = os.fork()
    if child == 0:
        try:
            (cell / "cgroup.procs").write_text("0", encoding="ascii")
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def own_cgroup() -> Path | None:
    """Return the directory of our own version 2 cgroup, None where there is none to be seen."""
    with suppress(OSError, StopIteration, ValueError):
        with open("/proc/self/cgroup", encoding="utf-8") as table:
            line = next(line for line in table if line.startswith("0::"))
        mount, root = _hierarchy()
        path = Path(line.removeprefix("0::").rstrip("\n"))
        return mount / path.relative_to(root)
    return None


def _hierarchy() -> tuple[Path, Path]:
    """Return where version 2 is mounted, and which cgroup that shows: proc_pid_mountinfo(5)."""
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        fields = next(line.split() for line in table if " - cgroup2 " in line)
    return Path(fields[4]), Path(fields[3])


def close_cell(cell: Path) -> None:
    """Kill all in a cgroup, those beneath included, and remove it.

    Raises ProcessesRemainError. Does nothing if it is gone.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    with suppress(FileNotFoundError):
        while _populated(cell):
            (cell / "cgroup.kill").write_text("1", encoding="ascii")
            if time.monotonic() >= deadline:
                raise ProcessesRemainError(
                    f"cgroup {cell}",
                    expected="empty after it was killed",
                    found="processes",
                    remedy="hold the machine and look for what keeps them",
                )
            time.sleep(_PAUSE)
        for path, _, _ in os.walk(cell, topdown=False):
            os.rmdir(path)


def _populated(cell: Path) -> bool:
    return "populated 1" in (cell / "cgroup.events").read_text(encoding="ascii")
