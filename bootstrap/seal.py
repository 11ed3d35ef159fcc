"""Seal a file: copy it by descriptor while hashing exactly the bytes that are written."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.files import CHUNK, storage_error, write_all

if TYPE_CHECKING:
    from bootstrap.files import Directory

SEALED_MODE: Final = 0o444


@dataclass(frozen=True, slots=True)
class Digest:
    """What was hashed: lower-case hexadecimal sha256, and the size in bytes."""

    sha256: str
    size: int


def digest_fd(fd: int) -> Digest:
    """Hash an open file from its first byte to its end. Raises OSError.

    Reads into one reused buffer, so memory does not grow with the file. What is written to
    the file meanwhile may or may not be seen: seal first where that matters.
    """
    return _copy(fd, None)


def seal(source: int, target: Directory, name: str) -> Digest:
    """Copy an open file to a new read-only file in `target`, durable on return.

    The digest is of the bytes written, so a writer that changes the source meanwhile
    cannot make digest and copy differ. Raises OSError for the source, and StorageError for
    the copy (a file that exists included).
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o600, dir_fd=target.fd)
    except OSError as error:
        raise storage_error(target.path / name, error) from error
    try:
        digest = _copy(source, _Sink(fd, target, name))
        _make_durable(fd, target, name)
    finally:
        os.close(fd)
    return digest


@dataclass(frozen=True, slots=True)
class _Sink:
    fd: int
    directory: Directory
    name: str

    def write(self, data: memoryview) -> None:
        try:
            write_all(self.fd, data)
        except OSError as error:
            raise storage_error(self.directory.path / self.name, error) from error


def _copy(source: int, sink: _Sink | None) -> Digest:
    os.lseek(source, 0, os.SEEK_SET)
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK))
    size = 0
    while count := os.readv(source, [buffer]):
        chunk = buffer[:count]
        hasher.update(chunk)
        if sink:
            sink.write(chunk)
        size += count
    return Digest(hasher.hexdigest(), size)


def _make_durable(fd: int, target: Directory, name: str) -> None:
    try:
        os.fchmod(fd, SEALED_MODE)
        os.fsync(fd)
        os.fsync(target.fd)
    except OSError as error:
        raise storage_error(target.path / name, error) from error
