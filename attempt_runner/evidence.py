"""Load what the gate judges: every file read once, by descriptor, and nothing decided here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bootstrap.bind_receipt import MAX_RECEIPT_BYTES
from bootstrap.differences import changed_paths
from bootstrap.errors import UnsafeFileError, shown
from bootstrap.files import open_regular, read_regular
from bootstrap.globs import Globs
from bootstrap.identity import FrozenAttempt, read_identity
from bootstrap.joblog import Record, read_segment
from bootstrap.live import LivePath, open_live
from bootstrap.manifest import open_manifest
from bootstrap.seal import digest_fd
from bootstrap.state import State, open_attempt, read_generation
from bootstrap.visit import LIMITS, Rules, TreeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bootstrap.files import Directory

SEALED_DIFF: Final = "patch.diff"
SEALED_PROMPT: Final = "prompt"
RECEIPT: Final = "receipt.json"
MANIFEST: Final = "manifest"


@dataclass(frozen=True, slots=True)
class FileFault:
    """A file that could not be judged: one word of `UnsafeFileError.reason`, or `empty`."""

    reason: str
    found: str


FileDigest = str | FileFault  # lower-case hexadecimal sha256, or why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the gate compares, as it was read. None of it is accepted yet.

    `in_force` is the token of the generation of now, None before the first, and `segment` its
    part of the job log, the chain verified from the head. `live_diff` is None where the runner
    captured the change itself; `moved`, None where not, are the paths of the workspace that
    are no longer as they were captured.
    """

    identity: FrozenAttempt
    in_force: str | None
    segment: tuple[Record, ...]
    receipt: bytes | FileFault
    sealed_diff: FileDigest
    sealed_prompt: FileDigest
    live_diff: FileDigest | None
    moved: tuple[bytes, ...] | FileFault | None
    live_prompt: FileDigest
    workspace: tuple[int, int] | None  # device and inode that the path names now
    claims: Mapping[str, str]  # field name to what the caller's environment says of it


def load_evidence(
    state: State,
    attempt_id: str,
    workspace: Directory,
    *,
    live_diff: LivePath | None,
    live_prompt: LivePath | None,
    claims: Mapping[str, str],
) -> Evidence:
    """Read everything about one attempt.

    `live_diff` and `live_prompt` take the place of the paths frozen in attempt.json, None
    keeps those; a captured change is compared with the workspace besides. `claims` are what
    the caller's own environment says of the attempt. A file that an agent or a scorer could
    have spoiled becomes a `FileFault`; the runner's own raise TamperedStateError or
    LogChainError.
    """
    with open_attempt(state, attempt_id) as directory:
        identity = read_identity(directory, attempt_id)
        generation = read_generation(state)
        diff = live_diff or identity.diff
        prompt = live_prompt or identity.prompt
        segment = read_segment(state.directory, None)
        return Evidence(
            identity=identity,
            in_force=generation.generation if generation else None,
            segment=segment,
            receipt=_read_receipt(directory),
            sealed_diff=_digest_sealed(directory, SEALED_DIFF),
            sealed_prompt=_digest_sealed(directory, SEALED_PROMPT),
            live_diff=_digest_live(diff, workspace) if diff else None,
            moved=None
            if identity.diff
            else _moved_paths(segment, directory, attempt_id, workspace),
            live_prompt=_digest_live(prompt, workspace, may_be_link=True),
            workspace=_named_directory(identity.workspace),
            claims=claims,
        )


def _digest_live(live: LivePath, workspace: Directory, *, may_be_link: bool = False) -> FileDigest:
    """Hash a live input, or say why it cannot be; an empty file cannot."""
    try:
        return _digest_and_close(open_live(live, workspace, may_be_link=may_be_link))
    except UnsafeFileError as error:
        return FileFault(error.reason, error.found)


def _moved_paths(
    segment: tuple[Record, ...], attempt: Directory, attempt_id: str, workspace: Directory
) -> tuple[bytes, ...] | FileFault:
    """Compare the workspace with the manifest of its capture: the second manifest of step 14."""
    excluded: Any = _field(segment, "model_frozen", "excluded") or ()
    captured = _field(segment, "inputs_sealed", "tree_sha256", attempt_id)
    if not isinstance(captured, str):  # the segment of a later generation does not hold it
        return FileFault("missing", "no capture of this attempt in this generation's log")
    try:
        with open_manifest(attempt, MANIFEST) as manifest:
            rules = Rules(LIMITS, Globs(excluded))
            return changed_paths(workspace, rules, manifest, captured)
    except TreeError as error:
        return FileFault(error.reason, f"{error.reason} at {shown(error.path)}")
    except FileNotFoundError:
        return FileFault("missing", "no manifest of the capture")


def _field(
    segment: tuple[Record, ...], event: str, name: str, attempt_id: str | None = None
) -> object:
    for record in segment:
        if record.event == event and attempt_id in (None, record.fields.get("attempt_id")):
            return record.fields.get(name)
    return None


def _read_receipt(directory: Directory) -> bytes | FileFault:
    try:
        return read_regular(directory, RECEIPT, MAX_RECEIPT_BYTES)
    except UnsafeFileError as error:
        return FileFault(error.reason, error.found)


def _digest_sealed(directory: Directory, name: str) -> FileDigest:
    try:
        return _digest_and_close(open_regular(directory, name))
    except UnsafeFileError as error:
        return FileFault(error.reason, error.found)


def _digest_and_close(fd: int) -> FileDigest:
    try:
        digest = digest_fd(fd)
    except OSError as error:
        return FileFault("unreadable", error.strerror or "an error")
    finally:
        os.close(fd)
    return digest.sha256 if digest.size else FileFault("empty", "an empty file")


def _named_directory(path: os.PathLike[str]) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
