"""Read an attempt back for people: who it was, what the log says, how it was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.trial import DECISION
from bootstrap.bind_receipt import StrictJsonError, load_json
from bootstrap.errors import ConfigurationError, Finding, TamperedStateError, UnsafeFileError
from bootstrap.files import read_regular
from bootstrap.identity import AttemptIdentity, read_identity
from bootstrap.joblog import CLOSING, Record, read_segment
from bootstrap.state import State, open_attempt

if TYPE_CHECKING:
    from bootstrap.files import Directory

MAX_DECISION_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Story:
    """One attempt as its files and the log tell it.

    `outcome` is the event of its last closing record, or `open`. `findings` are those of
    decision.json, empty for an accept or where there is none.
    """

    identity: AttemptIdentity
    records: tuple[Record, ...]
    outcome: str
    findings: tuple[Finding, ...]
    path: str


def read_story(state: State, attempt_id: str) -> Story:
    """Read one attempt. Raises ConfigurationError if there is none, TamperedStateError."""
    with _open(state, attempt_id) as directory:
        identity = read_identity(directory, attempt_id)
        findings = read_findings(directory)
        path = str(directory.path)
    segment = read_segment(state.directory, identity.generation)
    records = tuple(item for item in segment if item.fields.get("attempt_id") == attempt_id)
    closing = [
        record.event for record in records if record.event in CLOSING | {"consumed", "revoked"}
    ]
    return Story(identity, records, closing[-1] if closing else "open", findings, path)


def _open(state: State, attempt_id: str) -> Directory:
    try:
        return open_attempt(state, attempt_id)
    except UnsafeFileError as error:
        raise ConfigurationError(
            f"attempt {attempt_id}",
            expected="an attempt of this workspace",
            found="none",
            remedy="`attempt-runner log` lists them",
        ) from error


def read_findings(directory: Directory) -> tuple[Finding, ...]:
    """Read what decision.json says refused; empty without one. Raises TamperedStateError."""
    try:
        document: Any = load_json(read_regular(directory, DECISION, MAX_DECISION_BYTES))
        return tuple(
            Finding(str(item["field"]), str(item["expected"]), str(item["found"]))
            for item in document["findings"]
        )
    except UnsafeFileError as error:
        if error.reason == "missing":
            return ()
        raise _tampered(directory, error) from error
    except (StrictJsonError, KeyError, TypeError) as error:
        raise _tampered(directory, error) from error


def _tampered(directory: Directory, error: Exception) -> TamperedStateError:
    return TamperedStateError(
        str(directory.path / DECISION),
        expected="the decision that the runner wrote",
        found=str(error),
    )
