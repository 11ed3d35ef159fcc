"""The table of processes, as /proc shows it. Reads only; signals nothing.

A pid names a process only until it is reaped; with the time of its start it names that
process for good (within one boot).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process by pid and start time, in clock ticks since boot (0 where unknown)."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the table: proc_pid_stat(5), fields 1, 3, 4, 6 and 22."""

    id: ProcessId
    state: str
    parent: int
    session: int

    @property
    def alive(self) -> bool:
        """Whether it still runs or can: a zombie or a dead process cannot."""
        return self.state not in {"Z", "X", "x"}


def read_process(pid: int) -> Process | None:
    """Return a process, a zombie included, or None when there is none of that pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses is the process's own choice: it may hold spaces and `)`.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        ProcessId(pid, int(fields[19])), fields[0].decode(), int(fields[1]), int(fields[3])
    )


def identify(pid: int) -> ProcessId:
    """Name a process that cannot be reaped meanwhile. Raises ProcessLookupError."""
    if not table_is_ours():
        return ProcessId(pid, 0)
    process = read_process(pid)
    if process is None:
        raise ProcessLookupError(pid)
    return process.id


def table_is_ours() -> bool:
    """Whether /proc counts pids as this process does.

    In a new pid namespace without a new /proc every number there names another process.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def all_processes() -> Iterator[Process]:
    """Yield every process that is visible, zombies included."""
    for name in os.listdir("/proc"):
        process = read_process(int(name)) if name.isdecimal() else None
        if process is not None:
            yield process


def children_of(parent: int) -> list[int]:
    """Return the pids of a process's children, zombies included.

    One that is born or adopted meanwhile may be missing.
    """
    return _lister()(parent)


def descendants_below(roots: Iterable[int]) -> list[Process]:
    """Return what descends from `roots`, the nearest first, without the roots themselves.

    As `children_of`: who needs proof repeats this until nothing is left to wait for.
    """
    list_children = _lister()
    family, found, parents = set(roots), [], list(roots)
    for parent in parents:
        for pid in list_children(parent):
            process = read_process(pid)
            # Between listing and reading, the pid may have passed to a stranger.
            if process is not None and process.parent in family and pid not in family:
                family.add(pid)
                found.append(process)
                parents.append(pid)
    return found


def _lister() -> Callable[[int], list[int]]:
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _children_by_file
    return _children_by_scan()


def _children_by_file(parent: int) -> list[int]:
    """Read proc_tid_children(5), at a cost that grows with the tree only."""
    children: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


def _children_by_scan() -> Callable[[int], list[int]]:
    """Return the same from one scan, for a kernel without CONFIG_PROC_CHILDREN."""
    by_parent: dict[int, list[int]] = {}
    for process in all_processes():
        by_parent.setdefault(process.parent, []).append(process.id.pid)
    return lambda parent: by_parent.get(parent, [])
