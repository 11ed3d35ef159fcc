"""A process that changes a workspace while it is wiped, until it is killed.

    python racer.py swap ONE OTHER      exchange two names, atomically, over and over
    python racer.py plant NAME          create one file again as soon as it is gone
    python racer.py fill                create files over and over

Works in its current directory, which follows a rename. Prints one line once it has begun.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2


@contextmanager
def racing(directory: Path, *words: str) -> Iterator[None]:
    """Run this file in a directory beside the caller's block."""
    command = [sys.executable, "-I", __file__, *words]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE) as racer:
        try:
            assert racer.stdout
            assert racer.stdout.readline() == b"racing\n"
            yield
            assert racer.poll() is None, "the racer died"
        finally:
            racer.kill()


def swap(one: str, other: str) -> None:
    """Exchange two names for ever; either may be missing for a while."""
    libc = ctypes.CDLL(None)
    paths = os.fsencode(one), os.fsencode(other)
    while True:
        libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE)


def plant(name: str) -> None:
    """Create a file for ever."""
    while True:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))


def fill() -> None:
    """Create files for ever; once the directory is removed there is nothing to do."""
    for number in itertools.count():
        try:
            os.close(os.open(f"late-{number}", os.O_CREAT | os.O_WRONLY))
        except FileNotFoundError:
            signal.pause()


ACTIONS: Final[dict[str, Callable[..., None]]] = {"swap": swap, "plant": plant, "fill": fill}

if __name__ == "__main__":
    sys.stdout.write("racing\n")
    sys.stdout.flush()
    ACTIONS[sys.argv[1]](*sys.argv[2:])
