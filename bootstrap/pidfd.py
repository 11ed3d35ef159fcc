"""Signal processes that are not our children: through a pidfd, or not at all.

Anyone may reap such a process, and its pid then passes to a stranger. A pidfd (pidfd_open(2))
holds whatever had the pid when it was opened; the time of its start tells who that was.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from bootstrap.proctable import read_process

if TYPE_CHECKING:
    from bootstrap.proctable import ProcessId


def send_signal(target: ProcessId, number: signal.Signals) -> None:
    """Signal exactly this process.

    Raises ProcessLookupError when it is gone, also when its pid was taken over, and
    PermissionError when it may not be signalled.
    """
    pidfd = open_process(target)
    try:
        signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


def open_process(target: ProcessId) -> int:
    """Return a pidfd of exactly this process. Raises ProcessLookupError when it is gone."""
    pidfd = os.pidfd_open(target.pid)
    process = read_process(target.pid)
    if process is None or process.id != target:
        os.close(pidfd)
        raise ProcessLookupError(target.pid)
    return pidfd
