"""Build trees that break deleters, and tell whether a place was touched."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from bootstrap.beneath import DIRECTORY_FLAGS

if TYPE_CHECKING:
    from pathlib import Path


def make_deep(top: Path, depth: int) -> None:
    """Nest `depth` directories below `top`, which is created, with a file in the last."""
    top.mkdir()
    fd = os.open(top, DIRECTORY_FLAGS)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", DIRECTORY_FLAGS, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(fd)


def make_wide(top: Path, files: int) -> None:
    """Put `files` empty files into `top`, which is created."""
    top.mkdir()
    fd = os.open(top, DIRECTORY_FLAGS)
    for number in range(files):
        os.close(os.open(f"score-{number}.json", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(fd)


def photograph(top: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return type, mode, owner, link count and content of everything below a directory."""
    seen = {}
    for path in (top, *top.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        seen[str(path)] = (status.st_mode, status.st_uid, status.st_nlink, content)
    return seen


def names_in(directory: Path) -> set[bytes]:
    """Return the names in a directory as they are stored."""
    return set(os.listdir(os.fsencode(directory)))
