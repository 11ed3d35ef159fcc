"""Close a broken job log aside, keep it, and start a new one that names it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bootstrap.chain import GENESIS, LOG_NAME, encode_record, follow
from bootstrap.errors import LogChainError, UsageError
from bootstrap.files import storage_error, write_replacing
from bootstrap.joblog import open_locked, rename_durably, replace_head, stamp
from bootstrap.logfile import read_head
from bootstrap.logread import verify_all
from bootstrap.seal import digest_fd

if TYPE_CHECKING:
    from collections.abc import Callable

    from bootstrap.files import Directory
    from bootstrap.seal import Digest

BROKEN_NAME: Final = "job-log.broken-{}.jsonl"
_NEXT_LOG: Final = ".job-log.jsonl.new"


def seal_broken(directory: Directory, clock: Callable[[], float] = time.time) -> str:
    """Keep a broken log under another name, begin a new one, and return that name.

    The new log's first record is `log_sealed`: name, size and sha256 of the old one, what its
    head said, and what is wrong with it. No generation of the old log is in the new one, so no
    attempt of it can be accepted any more. The caller holds the workspace lock. Killed
    anywhere, the log is still broken and the call can be made again. Raises UsageError for a
    log that verifies, LogChainError for one that is no regular file, and StorageError.
    """
    # An earlier call that was killed may have left the old log under both names.
    with open_locked(directory, single_link=False) as fd:
        cause = _cause(directory)
        try:
            digest = digest_fd(fd)
            kept = BROKEN_NAME.format(digest.sha256[:16])
            line = _first_line(directory, kept, digest, cause, clock())
            write_replacing(directory, _NEXT_LOG, line + b"\n")
            with suppress(FileExistsError):
                os.link(LOG_NAME, kept, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
            rename_durably(directory, _NEXT_LOG, LOG_NAME)
        except OSError as error:
            raise storage_error(directory.path / LOG_NAME, error) from error
        replace_head(directory, follow(GENESIS, line, LOG_NAME).head)
        return kept


def _cause(directory: Directory) -> str:
    count = 0
    try:
        for _ in verify_all(directory):
            count += 1
    except LogChainError as error:
        return str(error)
    raise UsageError(
        str(directory.path / LOG_NAME),
        expected="a broken chain",
        found=f"{count} records that verify",
        remedy="leave the log as it is",
    )


def _first_line(
    directory: Directory, kept: str, digest: Digest, cause: str, seconds: float
) -> bytes:
    fields = {
        "file": kept,
        "size": digest.size,
        "sha256": digest.sha256,
        "head": _head(directory),
        "cause": cause,
    }
    return encode_record(GENESIS, stamp(seconds), "log_sealed", fields)


def _head(directory: Directory) -> dict[str, object] | None:
    try:
        return read_head(directory)._asdict()
    except LogChainError:
        return None
