"""Learn whether a confined command was started at all, or its confinement failed.

What confines a command exits 1 or 125 when it fails, as the command itself might. So it also
writes to a pipe that the command does not inherit: each shim that it is ready or has failed,
bubblewrap the exit code of what ran.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMIT: Final = 64 * 1024  # bytes: a pipe holds no more, and a line is a few hundred
_ERROR: Final = b"error: "
_READY: Final = b"ready"


class Status(NamedTuple):
    """Write ends of one pipe, one for each that may report, since each closes its own."""

    shim: int
    bwrap: int
    inner_shim: int


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start in place of a command: its argv and the descriptors it must inherit.

    The status pipe will tell of `shims` that each is ready; if `reports_exit`, and only then,
    it must also tell how the command ended before it counts as started.
    """

    argv: tuple[str, ...]
    pass_fds: tuple[int, ...] = ()
    shims: int = 0
    reports_exit: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Whether a command was started: `no` is certain, `unknown` must not count as a run.

    `unknown` is bubblewrap alone that exited by itself without a word on how the command
    ended: a mount failed, the program is missing, or the command brought bubblewrap down.
    """

    proof: Literal["yes", "no", "unknown"]
    cause: str = ""


@contextmanager
def status_pipe() -> Iterator[StatusPipe]:
    """Open a pipe for one launch; close what is left of it at the end."""
    reader, writer = os.pipe()
    pipe = StatusPipe(reader, Status(writer, os.dup(writer), os.dup(writer)))
    os.set_blocking(reader, False)
    try:
        yield pipe
    finally:
        pipe.close_ends()
        os.close(reader)


class StatusPipe:
    """The pipe of one launch: `ends` go to `isolate.enclose`, `outcome` tells what came."""

    def __init__(self, reader: int, ends: Status) -> None:
        self._reader = reader
        self.ends = ends
        self._open = True

    def close_ends(self) -> None:
        """Close our copies of the write ends."""
        if self._open:
            self._open = False
            for end in self.ends:
                os.close(end)

    def outcome(self, launch: Launch, code: int | None) -> Start:
        """Tell whether the command of `launch` was started; call it once, after its end.

        `code` is what was exited with, None for a signal. Never blocks, whoever still holds
        the pipe.
        """
        self.close_ends()
        lines = self._read().splitlines()
        for line in lines:
            if line.startswith(_ERROR):
                return Start("no", line.removeprefix(_ERROR).decode("ascii", "replace"))
        if lines.count(_READY) < launch.shims:
            return Start("no", "the confinement was not completed; see the output")
        if launch.reports_exit and code is not None and not any(map(_tells_exit, lines)):
            return Start("unknown", f"bubblewrap exited {code} and did not say how the command did")
        return Start("yes")

    def _read(self) -> bytes:
        data = b""
        with suppress(BlockingIOError):
            while len(data) < _LIMIT and (chunk := os.read(self._reader, _LIMIT)):
                data += chunk
        return data


def _tells_exit(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and "exit-code" in document
