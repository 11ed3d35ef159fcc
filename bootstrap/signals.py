"""Signals kept until the runner looks at them: none interrupts it, none is lost.

The console script imports this module and installs an inbox before anything that takes time
to import, so this module imports next to nothing. No handler raises: Ctrl-C never becomes a
traceback, and half-written state is never left by a signal.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # the typing module would cost as much as all else here
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class SignalInbox:
    """Receive signals into a list, and wake whoever polls `fileno()`.

    SIGCHLD wakes the poller too and is not kept. `pending` tells the first signal that asked
    the runner to stop; it stays until the process ends, so that every step sees it.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._waiting: list[int] = []
        self._stop: int | None = None
        self._held = False

    def install(self, signals: Iterable[signal.Signals] = STOP_SIGNALS) -> None:
        """Take over `signals`, from the main thread; may be called again to add some.

        SIGHUP stays ignored if it is, since nohup(1) asked for that. Whatever mask and
        SIGCHLD disposition were inherited are undone: with SIGCHLD ignored the kernel would
        throw away the exit status of children.
        """
        wanted = [number for number in signals if not _is_nohup(number)]
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _only_wake)
        for number in wanted:
            signal.signal(number, self._receive)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [*wanted, signal.SIGCHLD])

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number not in self._waiting:  # as the kernel does: one of a kind waits
            self._waiting.append(number)
        if self._stop is None and number in STOP_SIGNALS:
            self._stop = number

    @property
    def pending(self) -> int | None:
        """The first signal that asked to stop; None if there was none, or while held."""
        return None if self._held else self._stop

    def hold(self) -> None:
        """Hide stop signals from now on: a score was read, its decision must become durable."""
        self._held = True

    def release(self) -> None:
        """Show what arrived meanwhile: the decision is durable."""
        self._held = False

    def take(self) -> tuple[int, ...]:
        """Return the signals received since the last call, oldest first, each kind once."""
        taken = tuple(self._waiting)
        del self._waiting[: len(taken)]  # one may arrive between the two statements
        return taken

    def fileno(self) -> int:
        """Return the descriptor that is readable after a signal arrived."""
        return self._reader

    def drain(self) -> None:
        """Make `fileno()` quiet until the next signal; call it before looking at the rest."""
        try:
            while os.read(self._reader, 4096):
                pass
        except BlockingIOError:
            return


def _is_nohup(number: signal.Signals) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a signal without a handler would not reach the wake-up descriptor."""
