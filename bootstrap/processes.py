"""Run one child: start it, limit it, stop it, collect how it ended.

A child gets a list of arguments, an environment that was built for it, its own session (so
no terminal to type into), no stdin, and no descriptor that was not named. It is over when it
has exited, whatever still holds its pipe. What it leaves behind is for `clear_descendants`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ProcessesRemainError
from bootstrap.files import storage_error
from bootstrap.launch import Running, start, start_error
from bootstrap.output import OutputPump
from bootstrap.reaper import reap_orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bootstrap.proctable import ProcessId
    from bootstrap.signals import SignalInbox

MARKER_VARIABLE: Final = "ATTEMPT_RUNNER_MARK"  # random per attempt: finds what a crash left
UNKNOWN_STATUS: Final = 255  # of a child whose end nobody saw: a failure
_DYING: Final = 30.0  # seconds a killed process may take: it frees memory, or a device


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to run, seconds between TERM and KILL, bytes of output to keep."""

    timeout: float
    grace: float
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Child:
    """What to start. `output` is an open log file; stdout and stderr go there together."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    output: int
    pass_fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended: by `code` or by `signal`, both None if nobody saw it.

    `timed_out` and `interrupted` (the signal to us) say why it was stopped, if it was.
    `output_bytes` is all that it wrote; `truncated` that the log holds less.
    """

    code: int | None
    signal: int | None
    timed_out: bool = False
    interrupted: int | None = None
    output_bytes: int = 0
    truncated: bool = False

    @property
    def status(self) -> int:
        """The code, or 128 + n for a signal, as a shell reports it."""
        return status_of(self.code, self.signal)


def status_of(code: int | None, number: int | None) -> int:
    """Return the code, 128 + n for a signal, or a failure if neither is known."""
    if number is not None:
        return 128 + number
    return UNKNOWN_STATUS if code is None else code


def run_child(
    child: Child,
    limits: Limits,
    inbox: SignalInbox,
    started: Callable[[ProcessId], None],
) -> Exit:
    """Run a child to its exit, or stop it: its group gets TERM, then KILL after the grace.

    It is stopped at the time limit and when `inbox` has a signal that asks us to stop; one
    that is pending already keeps it from being started at all. `started` is called once,
    right after the start. The status is the child's own: orphans are reaped beside it.

    Descendants may be left, alive: call `clear_descendants` next, also after an exception.
    Raises ConfigurationError or UnavailableError (see `launch.start_error`), StorageError
    when the log could not be written, ProcessesRemainError when it survives KILL.
    """
    if inbox.pending is not None:
        return Exit(None, None, interrupted=inbox.pending)
    reader, writer = os.pipe()
    try:
        running = _start(child, writer)
        pump = OutputPump(reader, child.output, limits.output_bytes)
        try:
            started(running.id)
            return _see_through(running, pump, limits, inbox)
        finally:
            running.abandon()
    finally:
        os.close(reader)


def _start(child: Child, writer: int) -> Running:
    try:
        return start(
            child.argv, env=child.env, cwd=child.cwd, output=writer, pass_fds=child.pass_fds
        )
    except (OSError, ValueError) as error:
        raise start_error(child.argv, error) from error
    finally:
        os.close(writer)


def _see_through(running: Running, pump: OutputPump, limits: Limits, inbox: SignalInbox) -> Exit:
    timed_out, interrupted = _watch(running, pump, limits, inbox)
    pump.finish()
    if sys.platform != "linux":
        running.signal_group(signal.SIGKILL)  # nothing else finds what it left there
    code, number = running.collect()
    if pump.error is not None:
        raise storage_error(Path("output of the child"), pump.error) from pump.error
    return Exit(code, number, timed_out, interrupted, pump.total, pump.truncated)


def _watch(
    running: Running, pump: OutputPump, limits: Limits, inbox: SignalInbox
) -> tuple[bool, int | None]:
    """Return once it has exited; tell whether time forced it to, or which signal to us."""
    timed_out, interrupted = False, None
    ending = _Ending(running, limits)
    busy = False
    while not running.exited():
        patience = 0.0 if busy else ending.deadline - time.monotonic()
        running.wait_event(inbox.fileno(), *pump.sources(), seconds=patience)
        inbox.drain()
        pump.step()
        busy = reap_orphans(running.id.pid)
        if time.monotonic() >= ending.deadline:
            timed_out |= not ending.begun
            ending.advance()
        elif not ending.begun and (inbox.pending or pump.error):
            interrupted = inbox.pending
            ending.advance()
    return timed_out, interrupted


class _Ending:
    """What happens at each deadline: TERM after the time limit, KILL after the grace."""

    def __init__(self, running: Running, limits: Limits) -> None:
        self._running = running
        self._steps = iter([(signal.SIGTERM, limits.grace), (signal.SIGKILL, _DYING)])
        self.deadline = time.monotonic() + limits.timeout
        self.begun = False

    def advance(self) -> None:
        """Take the next step now. Raises ProcessesRemainError when none is left."""
        number, seconds = next(self._steps, (None, 0.0))
        if number is None:
            raise ProcessesRemainError(
                f"pid {self._running.id.pid}",
                expected=f"gone {_DYING:g} seconds after SIGKILL",
                found="still there",
                remedy="hold the machine and look for what keeps it",
            )
        self.begun = True
        self._running.signal_group(number)
        self.deadline = time.monotonic() + seconds
