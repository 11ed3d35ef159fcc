"""The gate: from evidence to `Accepted`, or a refusal that names its fields.

It only reads and compares: it writes nothing and starts nothing. What follows a decision -
a record, an emitted diff - is done by the caller.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from attempt_runner.evidence import Evidence, FileFault
from bootstrap.bind_receipt import (
    REJECT_NAMES,
    Identity,
    Receipt,
    RejectedError,
    judge,
    parse_receipt,
)
from bootstrap.errors import Finding, RefusalError, shown
from bootstrap.joblog import CLOSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attempt_runner.evidence import FileDigest
    from bootstrap.joblog import Record

RUNNER_NAMES: Final = (
    "agent",
    "scorer",
    "processes",
    "inputs_changed",
    "served_model",
    "job_log",
    "attempt_state",
    "isolation",
    "protected_paths",
    "coverage",
    "attestation",
)
ORDER: Final = (*REJECT_NAMES, *RUNNER_NAMES)
ALONE: Final = frozenset(REJECT_NAMES[:6])  # nothing can be compared beside one of these
VOIDING: Final = frozenset({"rejected", "attempt_aborted", "consumed", "revoked"})
NAMED_PATHS: Final = 5  # of those that moved, in one finding
REMEDY: Final = "run a new attempt; this one is final"

Stage = Literal["deciding", "decided"]  # before the closing record is written, or after


@dataclass(frozen=True, slots=True)
class Accepted:
    """A verified attempt: fresh, matching, pass. Only `judge_evidence` makes one."""

    attempt_id: str
    receipt: Receipt
    receipt_sha256: str
    evidence: Evidence


def judge_evidence(
    evidence: Evidence, stage: Stage, requirements: Mapping[str, str | None]
) -> Accepted:
    """Return `Accepted` after every check, or raise RefusalError with all that differ.

    1. The receipt, parsed and compared by the binder with the identity from attempt.json
       and the digests of the sealed copies.
    2. The live diff and prompt hold the sealed bytes.
    3. The sealed copies, and the workspace's path, are those of the attempt's start.
    4. The log names this attempt once, with this model and this receipt.
    5. The attempt's state allows an accept; one of an earlier generation's does not.
    6. The caller's own claims about model, generation and attempt id are the attempt's.
    7. Every requirement is in the attempt's recorded evidence.

    `requirements` maps a name to the value it must have, or to None where a true value will
    do. Not checked here: that the chain of the log is whole, which reading it proved.
    """
    receipt, findings = _check_receipt(evidence)  # 1
    findings += _check_live(evidence)  # 2
    if evidence.in_force == evidence.identity.generation:
        findings += _check_seals(evidence)  # 3
        findings += _check_log(evidence)  # 4
        findings += _check_state(evidence, stage)  # 5
    else:
        findings.append(Finding("attempt_state", "the generation in force", "an earlier one"))
    findings += compare_claims(evidence.claims, _claimable(evidence))  # 6
    findings += _check_requirements(evidence, requirements)  # 7
    if findings or receipt is None or isinstance(evidence.receipt, FileFault):
        raise refusal(findings)
    digest = hashlib.sha256(evidence.receipt).hexdigest()
    return Accepted(evidence.identity.attempt_id, receipt, digest, evidence)


def refusal(findings: Iterable[Finding]) -> RefusalError:
    """Return the refusal for findings: one a field, in the printed order."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.field, finding)
    ordered = tuple(first[name] for name in ORDER if name in first)
    alone = tuple(finding for finding in ordered if finding.field in ALONE)
    return RefusalError(alone[:1] or ordered, remedy=REMEDY)


def _check_receipt(evidence: Evidence) -> tuple[Receipt | None, list[Finding]]:
    if isinstance(evidence.receipt, FileFault):
        name = "missing_receipt" if evidence.receipt.reason == "missing" else "receipt_file"
        return None, [Finding(name, "the receipt of this attempt", evidence.receipt.found)]
    identity = _bound_identity(evidence)
    try:
        receipt = parse_receipt(evidence.receipt)
    except RejectedError as error:
        return None, [Finding(name, "a well-formed receipt", "another") for name in error.fields]
    try:
        judge(receipt, identity)
    except RejectedError as error:
        return None, [_mismatch(name, receipt, identity) for name in error.fields]
    return receipt, []


def _bound_identity(evidence: Evidence) -> Identity:
    return Identity(
        diff_sha256=_digest_text(evidence.sealed_diff),
        prompt_sha256=_digest_text(evidence.sealed_prompt),
        model_id=evidence.identity.model_id,
        workspace_generation=evidence.identity.generation,
        attempt_id=evidence.identity.attempt_id,
    )


def _digest_text(digest: FileDigest) -> str:
    return "" if isinstance(digest, FileFault) else digest


def _mismatch(name: str, receipt: Receipt, identity: Identity) -> Finding:
    expected = {"verdict": "pass", "reasons": "at least one reason, none blank"}
    default = str(getattr(identity, name, "a well-formed value"))
    return Finding(name, expected.get(name, default), shown(getattr(receipt, name, "another")))


def _check_live(evidence: Evidence) -> list[Finding]:
    findings = []
    for kind, live, sealed in (
        ("diff", evidence.live_diff, evidence.sealed_diff),
        ("prompt", evidence.live_prompt, evidence.sealed_prompt),
    ):
        if isinstance(live, FileFault):
            findings.append(Finding(f"{kind}_file", "the live file as it was sealed", live.found))
        elif live is not None and live != sealed:
            findings.append(Finding(f"{kind}_sha256", _digest_text(sealed), live))
    return findings + _check_tree(evidence)


def _check_tree(evidence: Evidence) -> list[Finding]:
    """Refuse a captured workspace that is no longer as it was captured."""
    if not evidence.moved:
        return []
    expected = "the workspace as it was captured"
    if isinstance(evidence.moved, FileFault):
        return [Finding("inputs_changed", expected, evidence.moved.found)]
    first = ", ".join(shown(path) for path in evidence.moved[:NAMED_PATHS])
    found = f"{len(evidence.moved)} paths that differ: {first}"
    return [Finding("inputs_changed", expected, found)]


def _check_seals(evidence: Evidence) -> list[Finding]:
    identity = evidence.identity
    sealed = _only(evidence.segment, "inputs_sealed", identity.attempt_id)
    if sealed is None:
        return [Finding("job_log", "one inputs_sealed record", "none or several")]
    findings = [
        Finding("inputs_changed", str(sealed.fields.get(name)), _digest_text(digest) or "no file")
        for name, digest in (
            ("diff_sha256", evidence.sealed_diff),
            ("prompt_sha256", evidence.sealed_prompt),
        )
        if sealed.fields.get(name) != digest
    ]
    if evidence.workspace != (identity.workspace_device, identity.workspace_inode):
        findings.append(
            Finding("inputs_changed", "the workspace directory of the start", "another directory")
        )
    return findings


def _check_log(evidence: Evidence) -> list[Finding]:
    identity = evidence.identity
    started = _only(evidence.segment, "attempt_started", identity.attempt_id)
    if started is None:
        return [Finding("job_log", "one attempt_started record", "none or several")]
    frozen = [record for record in evidence.segment if record.event == "model_frozen"]
    findings = [
        Finding("job_log", f"model {identity.model_id}", shown(record.fields.get("model_id")))
        for record in (started, *frozen)
        if record.fields.get("model_id") != identity.model_id
    ]
    if not frozen:
        findings.append(Finding("job_log", "one model_frozen record", "none"))
    written = _only(evidence.segment, "receipt_written", identity.attempt_id)
    if isinstance(evidence.receipt, bytes):
        digest = hashlib.sha256(evidence.receipt).hexdigest()
        if written is None or written.fields.get("receipt_sha256") != digest:
            findings.append(Finding("job_log", "the digest of this receipt", "another or none"))
    return findings


def _check_state(evidence: Evidence, stage: Stage) -> list[Finding]:
    attempt_id = evidence.identity.attempt_id
    events = [record.event for record in _of_attempt(evidence.segment, attempt_id)]
    closing = [event for event in events if event in CLOSING]
    voiding = [event for event in events if event in VOIDING]
    expected = [] if stage == "deciding" else ["accepted"]
    if voiding or closing != expected:
        found = ", ".join(voiding or closing) or "no closing record"
        return [Finding("attempt_state", "an attempt that is open to be accepted", found)]
    return []


def compare_claims(claims: Mapping[str, str], bound: Mapping[str, str]) -> list[Finding]:
    """Compare what a caller claims, by field name, with what was frozen."""
    return [
        Finding(field, bound[field], shown(claimed) or "an empty value")
        for field, claimed in claims.items()
        if claimed != bound[field]
    ]


def _claimable(evidence: Evidence) -> dict[str, str]:
    identity = evidence.identity
    return {
        "model_id": identity.model_id,
        "workspace_generation": identity.generation,
        "attempt_id": identity.attempt_id,
    }


def _check_requirements(
    evidence: Evidence, requirements: Mapping[str, str | None]
) -> list[Finding]:
    known = recorded_evidence(evidence)
    findings = []
    for name, value in requirements.items():
        found = known.get(name)
        met = found == value if value is not None else found in ("true", "kept", "yes")
        if not met:
            wanted = f"{name}={value}" if value is not None else name
            findings.append(Finding("isolation", wanted, f"{name}={shown(found)}"))
    return findings


def recorded_evidence(evidence: Evidence) -> dict[str, str]:
    """Return what `--require` can name: the attempt's recorded evidence as text by name."""
    identity = evidence.identity
    known = {"scored": identity.scored}
    if identity.baseline is not None:
        known["baseline"] = identity.baseline
    return known | {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in identity.isolation.items()
    }


def _of_attempt(segment: Iterable[Record], attempt_id: str) -> list[Record]:
    return [record for record in segment if record.fields.get("attempt_id") == attempt_id]


def _only(segment: Iterable[Record], event: str, attempt_id: str) -> Record | None:
    found = [record for record in _of_attempt(segment, attempt_id) if record.event == event]
    return found[0] if len(found) == 1 else None
