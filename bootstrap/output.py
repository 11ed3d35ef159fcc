"""A child's output: from a pipe to a log file, capped, in constant memory."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from typing import Final

from bootstrap.files import write_all

# Bytes. Four times what a pipe holds unless told otherwise (pipe(7)): half the switches to
# and fro, and 64 runners of one user stay below that user's soft limit.
_BUFFER: Final = 256 * 1024


class OutputPump:
    """Keep the first `limit` bytes of a pipe in a file, then read on and drop the rest.

    A child that prints more is never blocked and never killed for it. `total` counts all
    that was read. The pipe is non-blocking; `ended` is set once every writer has closed it,
    which says nothing about the child. A failed write is kept in `error`, and the rest is
    dropped.
    """

    def __init__(self, source: int, target: int, limit: int) -> None:
        os.set_blocking(source, False)
        _widen(source)
        self._source = source
        self._target = target
        self._limit = limit
        self._view = memoryview(bytearray(_BUFFER))
        self.total = 0
        self.ended = False
        self.error: OSError | None = None

    @property
    def truncated(self) -> bool:
        """Whether the file lacks some of the output because of the limit."""
        return self.total > self._limit

    def sources(self) -> tuple[int, ...]:
        """Return what to poll: nothing once every writer is gone, or poll would not sleep."""
        return () if self.ended else (self._source,)

    def step(self) -> int:
        """Move what one read returns; return its size, 0 when nothing is there."""
        try:
            size = os.readv(self._source, [self._view])
        except BlockingIOError:
            return 0
        self.ended = size == 0
        self._keep(self._view[: min(size, max(0, self._limit - self.total))])
        self.total += size
        return size

    def _keep(self, data: memoryview) -> None:
        if self.error is None and data:
            try:
                write_all(self._target, data)
            except OSError as error:
                self.error = error

    def finish(self) -> None:
        """Move what the child had written when it exited.

        At most what the pipe can hold, so that a grandchild which keeps writing cannot
        keep us reading.
        """
        left = _BUFFER
        while left > 0 and (moved := self.step()):
            left -= moved


def _widen(pipe: int) -> None:
    if sys.platform == "linux":
        with suppress(PermissionError):  # the user has many pipes: it stays as it is
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _BUFFER)
