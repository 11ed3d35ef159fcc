"""Control groups for children: one write kills all in it, and it limits how many there are."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.isolate import PROCESS_LIMIT
from bootstrap.errors import ProcessesRemainError

if TYPE_CHECKING:
    from collections.abc import Iterator

_KILL_SECONDS: Final = 30.0
_PAUSE: Final = 0.002
_PREFIX: Final = "attempt-"


@contextmanager
def open_cell(processes: int = PROCESS_LIMIT) -> Iterator[Path | None]:
    """Make a version 2 cgroup below our own for the time of one child; None if there is none.

    On the way out all in it is killed, and it is gone. Limits the number of processes where
    that controller is there. Raises ProcessesRemainError (77).
    """
    cell = _make(processes)
    try:
        yield cell
    finally:
        if cell is not None:
            close_cell(cell)


def _make(processes: int) -> Path | None:
    parent = own_cgroup()
    if parent is None:
        return None
    cell = parent / (_PREFIX + secrets.token_hex(16))
    try:
        os.mkdir(cell)
    except OSError:
        return None
    if not (cell / "cgroup.kill").exists():  # before Linux 5.14
        os.rmdir(cell)
        return None
    with suppress(OSError):  # the controller is not handed down to us
        (cell / "pids.max").write_text(str(processes), encoding="ascii")
    return cell


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


def is_cell(path: Path) -> bool:
    """Tell whether a path, recorded by an earlier run, is one of our cgroups and still there."""
    parent = own_cgroup()
    ours = parent is not None and path.parent == parent and path.name.startswith(_PREFIX)
    return ours and path.is_dir()


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
