"""Standard output for results, standard error for all else; a lost result is never success."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing import TextIO


class OutputLostError(Exception):
    """A result could not be written: standard output is closed, full, or without a reader."""

    status: ClassVar[int] = 77

    def __str__(self) -> str:
        cause = getattr(self.__cause__, "strerror", None) or "a closed stream"
        return (
            f"standard output: expected the result to be written, got {cause}; repeat the command"
        )


def write_result(text: str) -> None:
    """Write a command's result and flush it. Raises OutputLostError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as error:  # None when it was closed at start
        raise OutputLostError from error


def complain(message: str) -> None:
    """Write one line to standard error; one that cannot be written is lost."""
    try:
        sys.stderr.write(f"attempt-runner: {message}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        silence(sys.stderr)


def silence(stream: TextIO | None) -> None:
    """Send what a lost stream still holds nowhere, or the interpreter's exit would fail on it."""
    with suppress(AttributeError, OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        os.close(null)
