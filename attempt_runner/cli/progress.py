"""What is going on right now, on standard error, for a person who waits at a terminal.

It reads what the log says, as `log --follow` does: no step of an attempt knows of it. A timer
wakes it, not a thread, since the runner forks; it writes one line with write(2) alone, and
whatever goes wrong in it is nobody's loss.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.errors import RunnerError, shown
from bootstrap.joblog import read_tail
from bootstrap.lock import LOCK_NAME, name_holder
from bootstrap.state import open_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attempt_runner.plan import Intent
    from bootstrap.joblog import Record
    from bootstrap.signals import SignalInbox
    from bootstrap.state import State

PATIENCE: Final = 1.0  # seconds without a word
EVERY: Final = 0.5  # seconds from one look to the next
TAIL: Final = 4096  # bytes of a child's output that its last line is looked for in
STANDARD_ERROR: Final = 2
CLEAR: Final = "\r\x1b[K"
# The last event of the log: what follows it.
UNDER_WAY: Final[Mapping[str, str]] = {
    "generation_minted": "wiping the score paths",
    "score_paths_wiped": "freezing and hashing the inputs, capturing the change",
    "model_frozen": "starting the attempt",
    "attempt_started": "agent running",
    "failed_over": "agent running",
    "agent_exited": "stopping what the agent left",
    "processes_cleared": "wiping, reading and binding the score",
    "inputs_sealed": "scorer running",
    "scorer_exited": "stopping what the scorer left",
    "receipt_written": "verifying",
}


@dataclass(slots=True)
class _Watch:
    """What one command waits for; `seen` and `since` are its last record and when that came."""

    intent: Intent
    inbox: SignalInbox
    since: float
    seen: int = -1
    said_stop: bool = False
    spoke: bool = False

    def tick(self, *_: object) -> None:
        """Write one line over the last. Called by the timer, wherever the runner is."""
        with suppress(OSError, RunnerError, ValueError, RuntimeError):
            self.tell_stop()
            text = self._text()
            self.spoke = True
            width = shutil.get_terminal_size().columns - 1
            _write(f"{CLEAR}{text[:width]}")

    def tell_stop(self) -> None:
        """Say once what a signal stops and what is kept. Raises OSError."""
        if self.inbox.pending is not None and not self.said_stop:
            self.said_stop = True
            grace = self.intent.job.grace
            _write(
                f"{CLEAR}attempt-runner: stopping agent and scorer: TERM, then KILL after "
                f"{grace:g} s; log, attempt and workspace are kept\n"
            )

    def _text(self) -> str:
        root = self.intent.root
        with open_state(self.intent.workspace, root.path, create=False, named=root.named) as state:
            holder = _holder(state)
            if holder != f"process {os.getpid()}":
                return f"waiting for the workspace lock, held by {_describe(holder)}"
            last = (read_tail(state.directory, 1) or (None,))[0]
            return self._under_way(state, last)

    def _under_way(self, state: State, last: Record | None) -> str:
        seq = last.seq if last else 0
        if seq != self.seen:
            self.seen, self.since = seq, time.monotonic()
        elapsed = time.monotonic() - self.since
        event = last.event if last else ""
        text = UNDER_WAY.get(event, "clearing up after earlier runs, minting a generation")
        job = self.intent.job
        if event in ("attempt_started", "failed_over") and not job.agent:
            text = UNDER_WAY["score_paths_wiped"]
        role = text.partition(" running")[0]
        limit = {"agent": job.agent_timeout, "scorer": job.scorer_timeout}.get(role)
        if last is None or limit is None:
            return f"{text}, {elapsed:.0f} s"
        output = _last_line(state, str(last.fields.get("attempt_id")), f"{role}.log")
        return f"{text}, {elapsed:.0f} s of {limit:g}{output and ': '}{output}"


@contextmanager
def show_progress(intent: Intent, inbox: SignalInbox) -> Iterator[None]:
    """Tell what is going on while the body runs, if standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    watch = _Watch(intent, inbox, time.monotonic())
    before = signal.signal(signal.SIGALRM, watch.tick)
    signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003 - it takes no keyword
    signal.setitimer(signal.ITIMER_REAL, PATIENCE, EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        with suppress(OSError):
            watch.tell_stop()
            if watch.spoke:
                _write(CLEAR)


def _write(text: str) -> None:
    os.write(STANDARD_ERROR, text.encode("ascii", "backslashreplace"))


def _holder(state: State) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(LOCK_NAME, flags, dir_fd=state.directory.fd)
    try:
        return name_holder(fd)
    finally:
        os.close(fd)


def _describe(holder: str) -> str:
    """Add what a process is called and how long it has run, where the kernel tells."""
    number = holder.removeprefix("process ")
    with suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{number}/cmdline", "rb") as file:
            command = file.read(TAIL).replace(b"\0", b" ").strip()
        age = time.time() - os.stat(f"/proc/{number}").st_ctime
        return f"{holder} for {age:.0f} s: {shown(command, 60)}"
    return holder


def _last_line(state: State, attempt_id: str, name: str) -> str:
    """Return the last line of a child's output as one that a terminal may have."""
    path = state.directory.path / "attempts" / attempt_id / name
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        lines = os.pread(fd, TAIL, max(0, size - TAIL)).split(b"\n")
    finally:
        os.close(fd)
    told = [line for line in lines if line.strip()]
    return shown(told[-1].strip()) if told else ""
