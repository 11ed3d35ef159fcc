"""Write out the very bytes that the gate verified."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.evidence import SEALED_DIFF
from attempt_runner.gate import refusal
from attempt_runner.layout import writable_place
from bootstrap.errors import ConfigurationError, Finding
from bootstrap.files import Directory, open_directory, open_regular, storage_error
from bootstrap.seal import seal
from bootstrap.state import State, open_attempt

if TYPE_CHECKING:
    from attempt_runner.gate import Accepted


def emit_diff(state: State, accepted: Accepted, target: Path) -> None:
    """Put the accepted diff at `target` atomically, replacing a file that is there.

    The copy is hashed while it is written: bytes other than the verified ones are refused
    as `inputs_changed` and never get the target's name. Raises ConfigurationError for a
    target in the workspace, StorageError, RefusalError.
    """
    with open_place(target, state.workspace) as directory:
        _emit(state, accepted, directory, target.name)


def open_place(target: Path, workspace: Path) -> Directory:
    """Open the directory of a file to be written for others to trust.

    Raises ConfigurationError for one in the workspace, and where something other than a file
    lies, which a rename over it would take away (/dev/stdout is a link); StorageError.
    """
    # Named in the workspace is enough: a link that the agent left there would lead elsewhere.
    if why := writable_place(target.parent, [workspace]):
        raise _refused(target, "a place that the agent cannot write", why)
    try:
        directory = open_directory(Path(os.path.realpath(target.parent)))
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(target.name, dir_fd=directory.fd).st_mode):
                directory.close()
                raise _refused(target, "a file, or nothing there", "something else")
    except OSError as error:
        raise storage_error(target, error) from error
    return directory


def _refused(target: Path, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"output {target}",
        expected=expected,
        found=found,
        remedy="name a file outside the workspace, such as one in a fresh trusted clone",
    )


def _emit(state: State, accepted: Accepted, directory: Directory, name: str) -> None:
    temporary = f".{name}.{secrets.token_hex(8)}"
    with open_attempt(state, accepted.attempt_id) as attempt:
        source = open_regular(attempt, SEALED_DIFF)
    try:
        digest = seal(source, directory, temporary)
        if digest.sha256 != accepted.receipt.diff_sha256:
            raise refusal([Finding("inputs_changed", accepted.receipt.diff_sha256, digest.sha256)])
        os.replace(temporary, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
        os.fsync(directory.fd)
    except OSError as error:
        raise storage_error(directory.path / name, error) from error
    finally:
        os.close(source)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory.fd)
