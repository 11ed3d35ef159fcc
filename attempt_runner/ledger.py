"""The ledger of a gate's host: which attempts were accepted there, and which are revoked.

It is a job log in a directory of its own: the same chain, the same files, the same reader.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from attempt_runner.gate import refusal
from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.descent import Descent, make_durably
from bootstrap.errors import ConfigurationError, Finding
from bootstrap.files import Directory
from bootstrap.joblog import JobLog, verify_all
from bootstrap.lock import hold_lock

if TYPE_CHECKING:
    from pathlib import Path

    from attempt_runner.gate import Accepted

LOCK_WAIT: Final = 30.0  # seconds that one gate waits for others
VOIDING: Final = frozenset({"consumed", "revoked"})
_NOWHERE: Final = (-1, -1)  # there is no workspace that a ledger could lie in


def open_ledger(path: Path, *, create: bool) -> Directory:
    """Open a ledger's directory, an absolute path; with `create`, make what is missing.

    Raises ConfigurationError unless it is 0700 and ours, no link, and nobody else can replace
    it or a directory above.
    """
    try:
        with Descent(_NOWHERE) as descent:
            descent.walk(path.parent, create=create)
            if create:
                make_durably(path.name, descent.fd)
            fd = os.open(path.name, DIRECTORY_FLAGS, dir_fd=descent.fd)
    except ConfigurationError as error:
        raise _refused(path, error.expected, error.found) from error
    except OSError as error:
        found = os.strerror(error.errno or errno.EIO)
        raise _refused(path, "the directory of a ledger", found) from error
    directory = Directory(fd, path)
    status = os.fstat(directory.fd)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid() or mode != stat.S_IRWXU:
        directory.close()
        found = f"owner {status.st_uid}, mode {mode:04o}"
        raise _refused(path, f"owner {os.geteuid()}, mode 0700", found)
    return directory


def consume(ledger: Directory, accepted: Accepted) -> None:
    """Use an accepted attempt up: record it, durably, unless it is in the ledger already.

    Check and record are one step under the ledger's lock. Raises RefusalError `attempt_state`,
    LockHeldError (75), LogChainError (77), StorageError.
    """
    with hold_lock(ledger, LOCK_WAIT):
        require_unused(ledger, accepted)
        JobLog(ledger).append(
            "consumed",
            attempt_id=accepted.attempt_id,
            generation=accepted.receipt.workspace_generation,
            model_id=accepted.receipt.model_id,
            diff_sha256=accepted.receipt.diff_sha256,
            receipt_sha256=accepted.receipt_sha256,
        )


def require_unused(ledger: Directory, accepted: Accepted) -> None:
    """Raise RefusalError `attempt_state` for an attempt that was consumed or revoked here.

    All of the ledger is read and its chain verified: LogChainError.
    """
    events = [
        record.event
        for record in verify_all(ledger)
        if record.event in VOIDING and record.fields.get("attempt_id") == accepted.attempt_id
    ]
    if events:
        expected = "an attempt that is neither consumed nor revoked"
        raise refusal([Finding("attempt_state", expected, ", ".join(events))])


def revoke(directory: Directory, attempt_id: str, reason: str, **fields: object) -> None:
    """Record in a ledger, or in a job log, that an attempt may not be accepted any more.

    The caller holds the lock. Raises LogChainError, StorageError.
    """
    JobLog(directory).append("revoked", attempt_id=attempt_id, reason=reason, **fields)


def _refused(path: Path, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"ledger {path}",
        expected=expected,
        found=found,
        remedy="repair it, or name another directory with --ledger",
    )
