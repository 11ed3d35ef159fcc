"""Start a program and hold it until its status is collected. Knows no limits and no logs."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError, RunnerError, UnavailableError
from bootstrap.proctable import identify
from bootstrap.reaper import has_exited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_FULL: Final = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_LONGEST_POLL: Final = 86_400.0  # seconds: poll(2) counts milliseconds in an int
_TICK: Final = 0.05  # seconds between two looks at a child where there is no pidfd


class Running:
    """A started child. Its pid, and its group's, are its own until `collect`."""

    def __init__(self, pid: int) -> None:
        self.id = identify(pid)
        self._pidfd = _open_pidfd(pid)
        self._raw: int | None = None
        self._collected = False

    def exited(self) -> bool:
        """Tell whether it has exited. Does not look at what it left behind."""
        if not hasattr(os, "waitid"):
            return self._reap(os.WNOHANG)
        try:
            return has_exited(self.id.pid)
        except ChildProcessError:  # another took the status: `collect` will say so
            return True

    def signal(self, number: int) -> None:
        """Signal the child alone, where that is still allowed."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.id.pid, number)

    def signal_group(self, number: int) -> None:
        """Signal its process group, where that is still allowed."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.id.pid, number)

    def collect(self) -> tuple[int | None, int | None]:
        """Wait for it; return its code and its signal, both None if the status is lost."""
        self._reap(0)
        self._close()
        if self._raw is None:
            return None, None
        if os.WIFSIGNALED(self._raw):
            return None, os.WTERMSIG(self._raw)
        return os.WEXITSTATUS(self._raw), None

    def abandon(self) -> None:
        """Kill its group unless it was collected; the reaper clears what is left of it."""
        if not self._collected:
            self.signal_group(signal.SIGKILL)
            self._close()

    def _reap(self, options: int) -> bool:
        if not self._collected:
            try:
                reaped, raw = os.waitpid(self.id.pid, options)
            except ChildProcessError:
                self._collected = True  # the status is lost
            else:
                self._collected = reaped != 0
                self._raw = raw if reaped else None
        return self._collected

    def _close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def wait_event(self, *others: int, seconds: float) -> None:
        """Sleep until it exits, one of `others` is readable, or the time is over."""
        poller = select.poll()
        for fd in others:
            poller.register(fd, select.POLLIN)
        if self._pidfd is None:
            seconds = min(seconds, _TICK)
        else:
            poller.register(self._pidfd, select.POLLIN)
        poller.poll(1000 * min(max(seconds, 0.0), _LONGEST_POLL))


def _open_pidfd(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # a syscall filter that is older than pidfd_open(2)
        return None


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    output: int | None = None,
    pass_fds: Sequence[int] = (),
) -> Running:
    """Start a program in its own session; it inherits `pass_fds` and no other descriptor.

    With `output` it gets that as stdout and stderr, and an empty stdin; without, ours.
    Raises OSError or ValueError when it could not be started: it has run nothing then.
    """
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=None if output is None else subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    process.returncode = 0  # the reaper is the only owner of waiting: Popen must not
    return Running(process.pid)


def start_error(argv: Sequence[str], error: OSError | ValueError) -> RunnerError:
    """Return the error for a program that could not be started; nothing of it has run.

    A full machine is worth another try, anything else is a matter of configuration. Who
    starts a program after an agent ran must not pass the former on as it is.
    """
    found = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.errno in _FULL:
        return UnavailableError(
            argv[0], expected="room for one more process", found=found, remedy="try again later"
        )
    named = (isinstance(error, OSError) and error.filename) or argv[0]
    is_program = named == argv[0]
    return ConfigurationError(
        os.fsdecode(named),
        expected="a program that can be started" if is_program else "a directory to run it in",
        found=found,
        remedy="name an executable file, or one on its PATH" if is_program else "create it",
    )
