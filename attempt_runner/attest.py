"""From `Accepted` to a signed attestation, and from an attestation's bytes to `Accepted`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from attempt_runner.dsse import (
    MAX_ENVELOPE_BYTES,
    EnvelopeError,
    bundle,
    encode,
    open_envelope,
    seal_envelope,
)
from attempt_runner.evidence import Evidence, FileDigest
from attempt_runner.gate import Accepted, judge_evidence, refusal
from attempt_runner.statement import (
    Attested,
    StatementError,
    attempt_statement,
    parse_statement,
    result_statement,
)
from bootstrap.errors import ConfigurationError, Finding
from bootstrap.logread import MINTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.keys import PublicKey, SigningKey

CLOCK_SKEW: Final = timedelta(seconds=60)  # how far two hosts' clocks may honestly differ


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """How old the accept may be at an instant of now."""

    now: datetime
    limit: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the caller knows on its own. `claims` maps a field's name to the value it must have.

    `requirements` are those of the gate. `age` only ever adds a refusal.
    """

    diff: FileDigest
    prompt: FileDigest
    claims: Mapping[str, str]
    requirements: Mapping[str, str | None]
    age: AgeLimit | None


def attest(accepted: Accepted, key: SigningKey, *, as_bundle: bool) -> bytes:
    """Return the signed attestation of an accepted attempt. Raises ConfigurationError."""
    return _sign(attempt_statement(accepted), key, as_bundle=as_bundle)


def attest_result(accepted: Accepted, key: SigningKey, *, as_bundle: bool) -> bytes:
    """Return the same accept as a signed test-result of in-toto. Raises ConfigurationError."""
    return _sign(result_statement(accepted), key, as_bundle=as_bundle)


def _sign(payload: bytes, key: SigningKey, *, as_bundle: bool) -> bytes:
    envelope = seal_envelope(payload, key)
    data = encode(bundle(envelope, key.public.keyid) if as_bundle else envelope)
    if len(data) > MAX_ENVELOPE_BYTES:
        raise ConfigurationError(
            "attestation",
            expected=f"at most {MAX_ENVELOPE_BYTES} bytes",
            found=f"{len(data)}, for all that its generation logged",
            remedy="run a new attempt, and attest it at once",
        )
    return data


def verify_attestation(data: bytes, key: PublicKey, expected: Expected) -> Accepted:
    """Return `Accepted` after every check, or raise RefusalError.

    1. An envelope with exactly one signature, by this key. 2. A statement of ours. 3. All that
    the gate checks, by the gate's code, on what the statement carries and on the live diff and
    prompt. 4. The accept is not older than it may be.

    Not checked, since no other host can: that the workspace's path still names the directory
    of the start, and that no later generation was minted, revoked or consumed on the worker.
    The signer's gate checked that when it signed.
    """
    try:
        attested = parse_statement(open_envelope(data, key))  # 1, 2
    except EnvelopeError as error:
        raise _refused(error.expected, error.found) from error
    except StatementError as error:
        raise _refused("a statement that `attest` writes", str(error)) from error
    accepted = judge_evidence(_evidence(attested, expected), "decided", expected.requirements)  # 3
    if expected.age:
        _require_young(accepted, expected.age)  # 4
    return accepted


def _evidence(attested: Attested, expected: Expected) -> Evidence:
    identity = attested.identity
    minted = [record.fields for record in attested.segment if record.event == MINTED]
    return Evidence(
        identity=identity,
        in_force=str(minted[-1].get("generation")),
        segment=attested.segment,
        receipt=attested.receipt,
        sealed_diff=attested.diff_sha256,
        sealed_prompt=attested.prompt_sha256,
        live_diff=expected.diff,
        moved=None,  # the signer's gate compared it: the workspace is on the signer's host
        live_prompt=expected.prompt,
        workspace=(identity.workspace_device, identity.workspace_inode),
        claims=expected.claims,
    )


def _require_young(accepted: Accepted, age: AgeLimit) -> None:
    """Refuse an accept that is too old, or that a clock ahead of ours would keep young."""
    (record,) = (
        item
        for item in accepted.evidence.segment
        if (item.event, item.fields.get("attempt_id")) == ("accepted", accepted.attempt_id)
    )
    try:
        passed = age.now - datetime.fromisoformat(record.time)
    except (TypeError, ValueError) as error:
        raise _refused("an accept with a time", record.time) from error
    if not -CLOCK_SKEW <= passed <= age.limit:
        raise _refused(f"an accept of the last {age.limit}", f"one of {record.time}")


def _refused(expected: str, found: str) -> Exception:
    return refusal([Finding("attestation", expected, found)])
