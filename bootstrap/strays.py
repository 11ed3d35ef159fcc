"""Processes that an earlier run left behind when it was killed: find them, stop them.

They are no children of ours, so nobody keeps their pids for us: each is signalled through a
pidfd, and only if it started when it should have. That none is found is no proof that none
is there: a process may have cleared its environment and left its session.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ProcessesRemainError
from bootstrap.pidfd import open_process, send_signal
from bootstrap.processes import MARKER_VARIABLE
from bootstrap.proctable import (
    Process,
    ProcessId,
    all_processes,
    descendants_below,
    table_is_ours,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ENVIRON_LIMIT: Final = 4 * 1024 * 1024  # bytes read of one environment


def find_strays(marker: str, known: Sequence[ProcessId]) -> tuple[ProcessId, ...]:
    """Return the living processes of an earlier run on this machine, in this boot.

    Those are: one whose environment holds `marker`; one of the `known`, by pid and start
    time; one of a session that a known one led; and whatever descends from these. An
    environment that may not be read is no match. Empty where there is no process table.
    """
    if not table_is_ours():
        return ()
    table = {process.id.pid: process for process in all_processes() if process.alive}
    table.pop(os.getpid(), None)
    known = [process for process in known if process.start_ticks]  # 0: it was never known
    ours = {
        process.id.pid
        for process in table.values()
        if process.id in known or _in_session(process, known, table) or _marked(process, marker)
    }
    _add_descendants(ours, table)
    return tuple(table[pid].id for pid in sorted(ours))


def _in_session(process: Process, known: Sequence[ProcessId], table: dict[int, Process]) -> bool:
    """Tell whether a known process led the session; its number may be another's by now."""
    for leader in known:
        if process.session == leader.pid and process.id.start_ticks >= leader.start_ticks:
            living = table.get(leader.pid)
            return living is None or living.id == leader
    return False


def _marked(process: Process, marker: str) -> bool:
    wanted = os.fsencode(f"{MARKER_VARIABLE}={marker}")
    try:
        with open(f"/proc/{process.id.pid}/environ", "rb") as file:
            return wanted in file.read(_ENVIRON_LIMIT).split(b"\0")
    except OSError:
        return False


def _add_descendants(ours: set[int], table: dict[int, Process]) -> None:
    grown = True
    while grown:
        born = {pid for pid, process in table.items() if process.parent in ours} - ours
        ours |= born
        grown = bool(born)


def stop_strays(strays: Iterable[ProcessId], grace: float) -> None:
    """Stop these processes and all that descends from them, kill them, and wait for the end.

    All are stopped before any is killed, so that none can answer the death of another. A
    process that forked and was gone before it could be stopped left a stray of its own:
    repeat `find_strays` until it returns none. Raises ProcessesRemainError if one may not be
    signalled, or is not gone after `grace` seconds.
    """
    family: set[ProcessId] = set()
    met = set(strays)
    while met:  # what is stopped forks no more, so this ends
        family |= met
        _signal_all(met, signal.SIGSTOP)
        below = descendants_below([stray.pid for stray in family])
        met = {process.id for process in below if process.alive} - family
    _signal_all(family, signal.SIGKILL)
    deadline = time.monotonic() + grace
    for stray in family:
        _await_end(stray, deadline)


def _signal_all(strays: Iterable[ProcessId], number: signal.Signals) -> None:
    for stray in strays:
        try:
            send_signal(stray, number)
        except ProcessLookupError:
            continue
        except OSError as error:  # not allowed, or a system without pidfd_open(2)
            raise _remains(stray, f"error {error.errno} from its signal") from error


def _await_end(stray: ProcessId, deadline: float) -> None:
    try:
        pidfd = open_process(stray)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if not poller.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise _remains(stray, "it survived SIGKILL")
    finally:
        os.close(pidfd)


def _remains(stray: ProcessId, found: str) -> ProcessesRemainError:
    return ProcessesRemainError(
        f"pid {stray.pid} of an earlier run",
        expected="stopped",
        found=found,
        remedy="end it by hand, or reboot the machine",
    )
