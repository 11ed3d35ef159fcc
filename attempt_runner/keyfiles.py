"""The files that hold keys: where they may lie, who may read them, and how they are written."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from bootstrap.errors import ConfigurationError, StorageError, UnsafeFileError
from bootstrap.files import (
    READ_FLAGS,
    Directory,
    open_directory,
    read_capped,
    require_regular,
    write_new,
)

PRIVATE_NAME: Final = "key.pem"
PUBLIC_NAME: Final = "key.pub.pem"
MAX_KEY_BYTES: Final = 64 * 1024

_PUBLIC_MODE: Final = 0o644
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO  # with an access control list, its mask shows here
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def read_private_key(path: Path, workspace: Path | None) -> bytes:
    """Read a private key that nobody but this user, and root, can read.

    `workspace` is None where there is none, on the gate's host. Raises ConfigurationError for
    a key in the workspace, of another owner, with any permission for group or others, or with
    a second link, which could lie anywhere; and for no key.
    """
    if workspace is not None:
        _require_apart(path, workspace)
    try:
        fd = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)  # a mounted Secret is a link
        try:
            status = require_regular(fd, path)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
                found = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
                raise _refused(path, f"owner {os.geteuid()}, mode 0600", found)
            return read_capped(fd, MAX_KEY_BYTES, path)
        finally:
            os.close(fd)
    except UnsafeFileError as error:
        raise _refused(path, error.expected, error.found) from error
    except OSError as error:
        raise _refused(path, "a readable file", os.strerror(error.errno or 0)) from error


def read_file(path: Path, limit: int) -> bytes:
    """Read a file that the caller named, following a link. Raises UnsafeFileError."""
    try:
        fd = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)
    except OSError as error:
        found = os.strerror(error.errno or 0)
        raise UnsafeFileError(
            str(path), expected="a readable file", found=found, reason="unreadable"
        ) from error
    try:
        require_regular(fd, path, single_link=False)
        return read_capped(fd, limit, path)
    finally:
        os.close(fd)


def write_pair(path: Path, workspace: Path | None, private: bytes, public: bytes) -> None:
    """Write a key pair into a directory, made if there is none, replacing nothing.

    Raises ConfigurationError for a directory in the workspace, or in which others may write,
    and where either file is there already; StorageError.
    """
    if workspace is not None:
        _require_apart(path, workspace)
    with _open_place(path) as directory:
        _write(directory, PRIVATE_NAME, private, 0o600)
        try:
            _write(directory, PUBLIC_NAME, public, _PUBLIC_MODE)
        except (ConfigurationError, StorageError):
            with suppress(OSError):  # half a pair would be in the way of the next try
                os.unlink(PRIVATE_NAME, dir_fd=directory.fd)
            raise


def _open_place(path: Path) -> Directory:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        directory = open_directory(path)
    except OSError as error:
        raise _refused(path, "a directory for keys", os.strerror(error.errno or 0)) from error
    status = os.fstat(directory.fd)
    if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE:
        directory.close()
        found = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
        raise _refused(path, f"owner {os.geteuid()}, writable for nobody else", found)
    return directory


def _write(directory: Directory, name: str, data: bytes, mode: int) -> None:
    try:
        write_new(directory, name, data, mode)
    except StorageError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise _refused(directory.path / name, "nothing there yet", "a file") from error
        raise


def _require_apart(path: Path, workspace: Path) -> None:
    """Refuse a path in the workspace, by whatever link or mount of it the path leads there."""
    try:
        inner = os.stat(workspace)
        for place in (Path(os.path.abspath(path)), Path(os.path.realpath(path))):
            for parent in (place, *place.parents):
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.stat(parent), inner):
                        raise _refused(path, "a place outside the workspace", "one in it")
    except OSError as error:
        raise _refused(path, "a place to look at", os.strerror(error.errno or 0)) from error


def _refused(path: Path, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"key {path}",
        expected=expected,
        found=found,
        remedy="keep keys in a private directory of the runner's user, made by "
        "`attempt-runner keygen`",
    )
