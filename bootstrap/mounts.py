"""Mounts, told by the kernel's own ids and table: a bind mount keeps the device number."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import Final

_FDINFO_SIZE: Final = 1024  # bytes; the mount id is in the third line
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")  # how the table writes blanks and backslashes


def mount_of(fd: int) -> tuple[int, int]:
    """Return what tells the mount of an open file: (0, mount id), or (device, 0) without ids.

    The device is left out where an id is known: an overlay filesystem gives a file another
    device than the directory that holds it. Raises OSError; ENOTSUP where /proc is missing,
    so that no caller takes it for a missing file.
    """
    if sys.platform != "linux":
        return os.fstat(fd).st_dev, 0
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as info:
            lines = info.read(_FDINFO_SIZE).splitlines()
    except FileNotFoundError as error:
        raise OSError(errno.ENOTSUP, "no /proc to tell mounts by") from error
    ids = [int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:")]
    return (0, ids[0]) if ids else (os.fstat(fd).st_dev, 0)


def mount_points() -> tuple[bytes, ...]:
    """Return every mount point this process can see, as absolute paths; () off Linux.

    Raises OSError where the table cannot be read.
    """
    if sys.platform != "linux":
        return ()
    with open("/proc/self/mountinfo", "rb") as table:
        return tuple(_ESCAPED.sub(_unescape, line.split(b" ", 5)[4]) for line in table)


def path_of(fd: int) -> bytes:
    """Return where an open directory is now, as the mount table would write it. Linux only.

    Right only until the next rename. Raises OSError, ENAMETOOLONG beyond one page included.
    """
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])
