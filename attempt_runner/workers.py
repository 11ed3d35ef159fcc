"""Run a list of jobs here: a process of its own for each, so many at a time.

A job's runner kills whatever it finds below itself and proves that nothing is left, so it
must be alone in its process. One that is killed takes no other job with it.
"""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bootstrap.signals import SignalInbox

POLL_SECONDS: Final = 0.2  # how late a signal may be passed on
UNAVAILABLE: Final = 75
REJECTED: Final = 1
# From best to worst. A final no outranks a 75: who started a list again because of the 75
# would give rejected jobs another try.
RANKS: Final = (0, UNAVAILABLE, REJECTED, 2, 78, 70, 77)


@dataclass(frozen=True, slots=True)
class Ended:
    """One job of a list: its exit status, the line that it printed, and its notes."""

    index: int
    status: int
    line: str
    notes: tuple[str, ...]


class Workers:
    """The processes of a list. `stop` reaches each that runs and keeps others from starting."""

    def __init__(self, command_of: Callable[[int], Sequence[str]]) -> None:
        self._command_of = command_of
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, index: int) -> Ended:
        """Run one job to its end, in the calling thread."""
        with self._lock:
            if self._stopped:
                return Ended(index, UNAVAILABLE, "", ("was not started",))
            process = _start(self._command_of(index))
            self._running.add(process)
        output, notes = process.communicate()
        with self._lock:
            self._running.discard(process)
        return _ended(index, process.returncode, output, notes)

    def stop(self, number: int) -> None:
        """Pass a signal on, once: a runner records what it interrupts."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                for process in self._running:
                    process.send_signal(number)


def run_all(
    workers: Workers,
    count: int,
    at_a_time: int,
    inbox: SignalInbox,
    tell: Callable[[Ended], None],
) -> int:
    """Run jobs 0 to `count` - 1, tell of each as it ends, and return the worst status."""
    statuses: set[int] = set()
    running: set[Future[Ended]] = set()
    left = iter(range(count))
    with ThreadPoolExecutor(at_a_time) as pool:
        while True:
            free = at_a_time - len(running)
            running |= {
                pool.submit(workers.run, index) for _, index in zip(range(free), left, strict=False)
            }
            if not running:
                return worst(statuses)
            done, running = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            if inbox.pending is not None:
                workers.stop(inbox.pending)
            for future in done:
                ended = future.result()
                statuses.add(ended.status)
                tell(ended)


def worst(statuses: set[int]) -> int:
    """Return the status that counts for all; one that is not ours is a crash of ours."""
    known = {status if status in RANKS else REJECTED for status in statuses}
    return max(known, key=RANKS.index)


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    )


def _ended(index: int, code: int, output: str, notes: str) -> Ended:
    line = output.partition("\n")[0]
    status = 128 - code if code < 0 else code
    if (status == 0) is not (line == "accept"):  # a runner that lost its output accepted nothing
        status = status or REJECTED
    return Ended(index, status, line, tuple(notes.splitlines()))
