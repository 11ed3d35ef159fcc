"""The job image's entrypoint: supervise the job's command, as PID 1 or as a plain process."""

from __future__ import annotations

import math
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from bootstrap.launch import Running, start, start_error
from bootstrap.processes import status_of
from bootstrap.reaper import clear_descendants, reap_orphans
from bootstrap.signals import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bootstrap.signals import SignalInbox

FORWARDED: Final = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)

_NOT_EXECUTABLE: Final = 126  # as a shell: POSIX.1-2024, 2.8.2 Exit status for commands
_NOT_FOUND: Final = 127
_CLEARING: Final = 30.0  # seconds that killed leftovers may take to go


def supervise(argv: Sequence[str], env: Mapping[str, str], inbox: SignalInbox, grace: float) -> int:
    """Run the job's command to its end; return its code, or 128 + n for a signal.

    It has its own session and our standard streams. TERM, INT, HUP and QUIT go to its group,
    as from a terminal, and start the grace, after which its group is killed. WINCH goes to
    its group; USR1 and USR2 to the command alone, since they kill whoever does not expect
    them. A signal that arrived before the start is forwarded right after it. Orphans are
    reaped while it runs, and what it leaves is killed at the end.

    The caller has called `guard_runner`. A command that cannot be started is 127 (not found)
    or 126, with one line on standard error. The status is the command's own and never a
    verdict. Raises ProcessesRemainError.
    """
    inbox.install(FORWARDED)
    try:
        running = start(argv, env=env)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"bootstrap: {start_error(argv, error)}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    _forward_until_exit(running, inbox, grace)
    status = status_of(*running.collect())
    clear_descendants(time.monotonic() + _CLEARING)
    return status


def _forward_until_exit(running: Running, inbox: SignalInbox, grace: float) -> None:
    deadline, busy = math.inf, False
    while not running.exited():
        patience = 0.0 if busy else deadline - time.monotonic()
        running.wait_event(inbox.fileno(), seconds=patience)
        inbox.drain()
        busy = reap_orphans(running.id.pid)
        for number in inbox.take():
            _forward(running, number)
            if number in STOP_SIGNALS:
                deadline = min(deadline, time.monotonic() + grace)
        if time.monotonic() >= deadline:
            running.signal_group(signal.SIGKILL)
            deadline = math.inf


def _forward(running: Running, number: int) -> None:
    if number in {signal.SIGUSR1, signal.SIGUSR2}:
        running.signal(number)
    else:
        running.signal_group(number)
