"""Descriptor-safe files: opened once, beneath a directory, without following links.

Whatever an agent could have written is reached from a descriptor that was opened before the
agent ran. No name is looked up twice, and no link is followed on the way.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NewType, Self

from bootstrap.beneath import DIRECTORY_FLAGS, open_at
from bootstrap.errors import StorageError, UnsafeFileError

if TYPE_CHECKING:
    from types import TracebackType

StatePath = NewType("StatePath", Path)  # the runner's own: no agent can write it
AgentPath = NewType("AgentPath", bytes)  # relative to the workspace: nothing on it is trusted

CHUNK: Final = 64 * 1024  # one reused buffer of this size reads fastest and bounds memory
# A FIFO without a writer, or a device, must not hang the open.
READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class Closing:
    """What has a `close`: a `with` block closes it at its end."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; the object must not be used afterwards."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Directory(Closing):
    """An open directory: the descriptor to work beneath, and its path for messages only."""

    fd: int
    path: Path

    def close(self) -> None:
        """Close the descriptor; the object must not be used afterwards."""
        os.close(self.fd)


def open_directory(path: Path) -> Directory:
    """Open a directory by path; its last component may not be a link. Raises OSError."""
    return Directory(os.open(path, DIRECTORY_FLAGS), path)


def open_directory_beneath(parent: Directory, path: bytes | str) -> Directory:
    """Open a directory below `parent`, crossing no link and no mount. Raises OSError."""
    fd = open_beneath(parent, path, DIRECTORY_FLAGS)
    return Directory(fd, parent.path / os.fsdecode(path))


def make_directory(parent: Directory, name: str, mode: int = 0o700) -> Directory:
    """Create a directory exclusively and open it. Raises OSError, FileExistsError included."""
    os.mkdir(name, 0o700, dir_fd=parent.fd)
    made = open_directory_beneath(parent, name)
    try:
        os.fchmod(made.fd, mode)  # the umask must not decide who may enter
    except OSError:
        made.close()
        raise
    return made


def open_beneath(parent: Directory, path: bytes | str, flags: int) -> int:
    """Open `path` below `parent`, following no link and crossing no mount; see `open_at`."""
    return open_at(parent.fd, path, flags)


def open_regular(parent: Directory, path: bytes | str, *, single_link: bool = True) -> int:
    """Open a regular file below `parent` for reading, in bounded time whatever it is.

    Raises UnsafeFileError with `reason` one of `missing`, `not_regular`, `links` or
    `unreadable`.
    """
    shown_path = parent.path / os.fsdecode(path)
    try:
        fd = open_beneath(parent, path, READ_FLAGS)
    except OSError as error:
        raise _unsafe_open(shown_path, error) from error
    try:
        require_regular(fd, shown_path, single_link=single_link)
    except UnsafeFileError:
        os.close(fd)
        raise
    return fd


def _unsafe_open(path: Path, error: OSError) -> UnsafeFileError:
    reasons = {
        errno.ENOENT: ("missing", "nothing there"),
        errno.ENOTDIR: ("missing", "a parent that is no directory"),
        errno.ELOOP: ("not_regular", "a symbolic link"),
        errno.ENXIO: ("not_regular", "a socket or device"),
    }
    default = ("unreadable", os.strerror(error.errno or errno.EIO))
    reason, found = reasons.get(error.errno or errno.EIO, default)
    return UnsafeFileError(str(path), expected="a regular file", found=found, reason=reason)


def require_regular(fd: int, path: Path, *, single_link: bool = True) -> os.stat_result:
    """Return the status of an open regular file; raise UnsafeFileError for any other kind.

    A file without a name any more passes: `write_replacing` put another in its place meanwhile.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        found = stat.filemode(status.st_mode)[0]
        raise UnsafeFileError(
            str(path), expected="a regular file", found=f"file type {found}", reason="not_regular"
        )
    if single_link and status.st_nlink > 1:
        raise UnsafeFileError(
            str(path), expected="one link", found=f"{status.st_nlink} links", reason="links"
        )
    return status


def is_in_place(fd: int, parent: Directory, name: str) -> bool:
    """Tell whether a name in `parent` still leads to the open file."""
    try:
        named = os.lstat(name, dir_fd=parent.fd)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(fd))


def read_capped(fd: int, limit: int, path: Path) -> bytes:
    """Read an open file to its end, refusing more than `limit` bytes as soon as they appear."""
    chunks: list[bytes] = []
    left = limit + 1
    while left > 0:
        try:
            chunk = os.read(fd, min(CHUNK, left))
        except OSError as error:
            raise _unsafe_open(path, error) from error
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    raise UnsafeFileError(
        str(path), expected=f"at most {limit} bytes", found="more", reason="too_large"
    )


def read_regular(
    parent: Directory, path: bytes | str, limit: int, *, single_link: bool = True
) -> bytes:
    """Read a regular file below `parent`, at most `limit` bytes. Raises UnsafeFileError."""
    fd = open_regular(parent, path, single_link=single_link)
    try:
        return read_capped(fd, limit, parent.path / os.fsdecode(path))
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte, however short the single writes are. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_new(parent: Directory, name: str, data: bytes, mode: int = 0o600) -> None:
    """Create a file exclusively, durable before the call returns. Raises StorageError.

    A write that fails leaves no part of the file; a file that was there is left alone.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o600, dir_fd=parent.fd)
        try:
            write_all(fd, data)
            os.fchmod(fd, mode)
            os.fsync(fd)
        except OSError:
            os.unlink(name, dir_fd=parent.fd)
            raise
        finally:
            os.close(fd)
        os.fsync(parent.fd)
    except OSError as error:
        raise storage_error(parent.path / name, error) from error


def write_replacing(parent: Directory, name: str, data: bytes, mode: int = 0o600) -> None:
    """Put `data` in place of a file atomically and durably. Raises StorageError.

    A reader sees the old bytes or the new, never a part. On failure the old file stands.
    """
    temporary = f".{name}.{secrets.token_hex(8)}"
    try:
        write_new(parent, temporary, data, mode)
        os.replace(temporary, name, src_dir_fd=parent.fd, dst_dir_fd=parent.fd)
        os.fsync(parent.fd)
    except (OSError, StorageError) as error:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent.fd)
        if isinstance(error, StorageError):
            raise
        raise storage_error(parent.path / name, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the error for a write of ours that failed, naming file and cause."""
    return StorageError(
        str(path),
        expected="the write to succeed",
        found=os.strerror(error.errno or errno.EIO),
        remedy="free space or repair the filesystem before the next job",
    )
