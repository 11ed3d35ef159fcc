"""Open a name beneath an open directory: no link followed, no mount crossed, no escape.

The kernel's `openat2` does it in one call. Where there is none (before Linux 5.6, macOS, or
behind a syscall filter that does not know it) the path is walked by component.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from functools import cache
from typing import Final

from bootstrap.mounts import mount_of

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# To pass through a directory asks for search permission only, as the kernel's own walk does.
_PASS_FLAGS: Final = DIRECTORY_FLAGS | getattr(os, "O_PATH", 0)

_OPENAT2: Final = 437  # the same number on every architecture (asm-generic/unistd.h)
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_RESOLVE: Final = (
    _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
)
_RETRIES: Final = 64  # EAGAIN: a rename elsewhere raced the walk (openat2(2))


def open_at(fd: int, path: bytes | str, flags: int) -> int:
    """Open `path` below the open directory `fd`; return a descriptor that is close-on-exec.

    `path` is relative; empty or `.` is the directory itself, and a trailing slash changes
    nothing. Raises OSError: ELOOP for a link (ENOTDIR if it is the last component and
    `flags` has O_DIRECTORY), EXDEV for a mount, an absolute path or a `..`, EINVAL for a NUL.
    """
    parts = _components(os.fsencode(path))
    try:
        return _open_by_openat2(fd, b"/".join(parts), flags)
    except OSError as error:
        # EPERM is what a container's syscall filter answers for a call it does not know.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _open_by_walk(fd, parts, flags)


def _components(name: bytes) -> list[bytes]:
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or b".." in parts:
        raise _os_error(errno.EXDEV, name)
    if b"\0" in name:  # a C string ends there: it would open another file
        raise _os_error(errno.EINVAL, name)
    return parts or [b"."]


def _os_error(code: int, name: bytes) -> OSError:
    return OSError(code, os.strerror(code), os.fsdecode(name))


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _open_by_openat2(fd: int, name: bytes, flags: int) -> int:
    if sys.platform != "linux":
        raise _os_error(errno.ENOSYS, name)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    for _ in range(_RETRIES):
        opened = int(_libc().syscall(_OPENAT2, fd, name, ctypes.byref(how), size))
        if opened >= 0:
            return opened
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _os_error(ctypes.get_errno(), name)


def _open_by_walk(fd: int, parts: list[bytes], flags: int) -> int:
    *parents, last = parts
    mount = mount_of(fd)
    current = os.dup(fd)
    try:
        for part in parents:
            entered = _pass_through(current, part, mount)
            os.close(current)
            current = entered
        return _step(current, last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mount)
    finally:
        os.close(current)


def _pass_through(fd: int, part: bytes, mount: tuple[int, int]) -> int:
    try:
        return _step(fd, part, _PASS_FLAGS, mount)
    except NotADirectoryError:
        if stat.S_ISLNK(os.lstat(part, dir_fd=fd).st_mode):
            raise _os_error(errno.ELOOP, part) from None
        raise


def _step(fd: int, part: bytes, flags: int, mount: tuple[int, int]) -> int:
    entered = os.open(part, flags, dir_fd=fd)
    try:
        _require_mount(entered, mount, part)
    except OSError:
        os.close(entered)
        raise
    return entered


def _require_mount(fd: int, mount: tuple[int, int], part: bytes) -> None:
    if mount_of(fd) != mount:
        raise _os_error(errno.EXDEV, part)
