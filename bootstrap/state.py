"""What the state directory of a workspace keeps: its lock, its generation, its attempts."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from bootstrap.descent import make_durably, refused
from bootstrap.errors import (
    ConfigurationError,
    TamperedStateError,
    UnsafeFileError,
    UsageError,
)
from bootstrap.files import (
    Directory,
    make_directory,
    open_directory_beneath,
    read_regular,
    storage_error,
    write_replacing,
)
from bootstrap.generation import (
    Frozen,
    Generation,
    decode_generation,
    encode_generation,
    is_minted,
    mint_id,
)
from bootstrap.host import boot_id, machine_id
from bootstrap.lock import HeldLock, hold_lock
from bootstrap.place import default_root
from bootstrap.statedir import State, open_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = [
    "Frozen",
    "Generation",
    "State",
    "boot_id",
    "create_attempt",
    "default_root",
    "lock",
    "machine_id",
    "mint_generation",
    "mint_id",
    "open_attempt",
    "open_state",
    "read_generation",
    "require_in_force",
    "write_generation",
]

GENERATION_NAME: Final = "generation.json"
ATTEMPTS: Final = "attempts"
MAX_GENERATION_BYTES: Final = 1024 * 1024  # a command's argv and digests: 128 KiB a word


def lock(
    state: State, wait: float, between: Callable[[], None] = lambda: None
) -> AbstractContextManager[HeldLock]:
    """Hold the workspace lock, waiting at most `wait` seconds. See `hold_lock`."""
    return hold_lock(state.directory, wait, between)


def mint_generation(state: State, workspace: Directory, frozen: Frozen) -> Generation:
    """Mint a pending generation of the workspace that is open, on this machine in this boot.

    Raises ConfigurationError when the open directory is not the one the state was opened for.
    """
    status = os.fstat(workspace.fd)
    if (status.st_dev, status.st_ino) != (state.device, state.inode):
        remedy = "start again once nothing moves the workspace"
        raise refused(workspace.path, "the workspace that was named", "another", remedy)
    now = datetime.now(UTC)
    return Generation(
        generation=mint_id("gen", now),
        minted_at=now.isoformat(timespec="seconds"),
        status="pending",
        frozen=frozen,
        machine_id=machine_id(),
        boot_id=boot_id(),
        workspace_device=state.device,
        workspace_inode=state.inode,
    )


def write_generation(state: State, generation: Generation) -> None:
    """Put generation.json in place of the last one, durably. Raises StorageError."""
    write_replacing(state.directory, GENERATION_NAME, encode_generation(generation))


def read_generation(state: State) -> Generation | None:
    """Return the generation minted last, None before the first. Raises TamperedStateError."""
    path = state.directory.path / GENERATION_NAME
    try:
        return decode_generation(
            read_regular(state.directory, GENERATION_NAME, MAX_GENERATION_BYTES)
        )
    except UnsafeFileError as error:
        if error.reason == "missing":
            return None
        raise _tampered(path, error.expected, error.found) from error
    except (ValueError, TypeError) as error:
        raise _tampered(path, "the generation that the runner wrote", str(error)) from error


def require_in_force(generation: Generation | None, workspace: Directory) -> Generation:
    """Return the generation if it is in force for the open workspace, here and now.

    1. There is one. 2. Its bootstrap was finished. 3. It is of this machine. 4. Of this boot.
    5. Of this directory. Raises ConfigurationError.
    """
    if generation is None:
        raise _bootstrap_first("none")
    status = os.fstat(workspace.fd)
    of_here = {
        "one whose bootstrap was not finished": generation.status == "in_force",
        "one of another machine": generation.machine_id == machine_id(),
        "one of another boot": generation.boot_id == boot_id(),
        "one of another directory": (generation.workspace_device, generation.workspace_inode)
        == (status.st_dev, status.st_ino),
    }
    for found, holds in of_here.items():
        if not holds:
            raise _bootstrap_first(found)
    return generation


def create_attempt(state: State, attempt_id: str) -> Directory:
    """Make the directory of a new attempt, and open it.

    Raises TamperedStateError when anything lies there: an attempt is never reused; StorageError.
    """
    path = state.directory.path / ATTEMPTS / attempt_id
    if not is_minted("att", attempt_id):
        raise ValueError(f"expected an id that mint_id gave, got {attempt_id!r}")
    try:
        make_durably(ATTEMPTS, state.directory.fd)
        with open_directory_beneath(state.directory, ATTEMPTS) as attempts:
            made = make_directory(attempts, attempt_id)
            os.fsync(attempts.fd)
            return made
    except (FileExistsError, NotADirectoryError) as error:
        raise _tampered(path, "nothing there yet", os.strerror(error.errno or 0)) from error
    except OSError as error:
        raise storage_error(path, error) from error


def open_attempt(state: State, attempt_id: str) -> Directory:
    """Open the directory of an attempt.

    Raises UsageError when the text has not the form of an attempt id, and UnsafeFileError with
    `reason` one of `missing`, `not_regular` for anything but a directory, `unreadable`.
    """
    if not is_minted("att", attempt_id):
        raise UsageError(
            "attempt",
            expected="an attempt id: att-, a time, 32 hex digits",
            found=attempt_id,
            remedy="`attempt-runner log` lists them",
        )
    name = f"{ATTEMPTS}/{attempt_id}"
    try:
        return open_directory_beneath(state.directory, name)
    except OSError as error:
        reasons = {
            errno.ENOENT: "missing",
            errno.ENOTDIR: "not_regular",
            errno.ELOOP: "not_regular",
        }
        code = error.errno or errno.EIO
        reason, found = reasons.get(code, "unreadable"), os.strerror(code)
        path = str(state.directory.path / name)
        raise UnsafeFileError(path, expected="a directory", found=found, reason=reason) from error


def _bootstrap_first(found: str) -> ConfigurationError:
    return ConfigurationError(
        "generation",
        expected="one in force for this machine, boot and workspace",
        found=found,
        remedy="run `attempt-runner bootstrap` first",
    )


def _tampered(path: Path, expected: str, found: str) -> TamperedStateError:
    return TamperedStateError(str(path), expected=expected, found=found)
