"""in-toto statements: an accepted attempt as the bytes to sign, and those bytes read back.

Nothing here signs or checks a signature, and nothing opens a file. Source: in-toto Statement
v1, and for `result_statement` its predicate test-result v0.1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from bootstrap.bind_receipt import load_json
from bootstrap.chain import Head, Record, decode_record, encode_record
from bootstrap.errors import LogChainError
from bootstrap.identity import FrozenAttempt, frozen_from_json, frozen_to_json
from bootstrap.logread import MINTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.gate import Accepted

# A name under .example belongs to nobody, ever (RFC 2606), so nobody can come to own our types.
PROJECT_URI: Final = "https://attempt-runner.example"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = f"{PROJECT_URI}/attestation/agent-attempt/v1"
RESULT_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
SUBJECT: Final = "diff"


class StatementError(ValueError):
    """The payload is not a statement that `attempt_statement` could have written."""


@dataclass(frozen=True, slots=True)
class Attested:
    """What a statement tells. Nothing of it is judged yet.

    Digests are lower-case hex sha256. `receipt` is the bytes of receipt.json. `segment` is the
    job log from the minting of the attempt's generation to the log's head, its chain verified.
    """

    identity: FrozenAttempt
    receipt: bytes
    diff_sha256: str
    prompt_sha256: str
    segment: tuple[Record, ...]


def attempt_statement(accepted: Accepted) -> bytes:
    """Return the statement of an accepted attempt, its diff the subject."""
    evidence, receipt = accepted.evidence, accepted.receipt
    if not isinstance(evidence.receipt, bytes):
        raise TypeError("an accepted attempt has a receipt")
    return _encode(
        Attested(
            identity=evidence.identity,
            receipt=evidence.receipt,
            diff_sha256=receipt.diff_sha256,
            prompt_sha256=receipt.prompt_sha256,
            segment=evidence.segment,
        )
    )


def result_statement(accepted: Accepted) -> bytes:
    """Return that the tests of an accepted attempt passed, as in-toto's own predicate.

    Its configuration is the scorer: the program and each file that its command names.
    """
    files = accepted.evidence.identity.scorer.files
    configuration = [_descriptor(name, digest) for name, digest in sorted(files.items())]
    predicate = {"configuration": configuration, "result": "PASSED"}
    return _dump(_statement(accepted.receipt.diff_sha256, RESULT_TYPE, predicate))


def parse_statement(payload: bytes) -> Attested:
    """Return what a statement of ours tells.

    1. Strict JSON. 2. The log's lines are one chain that begins with a generation. 3. Made
    anew from the parts that were read, the statement has the very same bytes: so its types
    are ours, it has one subject, no key is missing, unknown or twice, and what it repeats for
    people and policies (log head, cleanup, config digest) is what the parts say. Raises
    StatementError.
    """
    try:
        document: Any = load_json(payload)  # 1
        predicate = document["predicate"]
        attested = Attested(
            identity=frozen_from_json(predicate["attempt"]),
            receipt=predicate["receipt"].encode("utf-8"),
            diff_sha256=document["subject"][0]["digest"]["sha256"],
            prompt_sha256=predicate["prompt_sha256"],
            segment=_follow(predicate["log"]["lines"]),  # 2
        )
        same = _encode(attested) == payload  # 3
    except (AttributeError, IndexError, KeyError, LogChainError, TypeError, ValueError) as error:
        raise StatementError(f"{type(error).__name__}: {error}") from error
    if not same:
        raise StatementError(f"another spelling, or other types than {PREDICATE_TYPE}")
    return attested


def _encode(attested: Attested) -> bytes:
    """Return the statement in its one spelling."""
    head = attested.segment[-1].head
    predicate = {
        "attempt": frozen_to_json(attested.identity),
        "cleanup": _cleanup(attested),
        "config_sha256": _config_digest(attested),
        "log": {"head": head._asdict(), "lines": [_line(record) for record in attested.segment]},
        "prompt_sha256": attested.prompt_sha256,
        "receipt": attested.receipt.decode("utf-8"),
    }
    return _dump(_statement(attested.diff_sha256, PREDICATE_TYPE, predicate))


def _statement(
    diff_sha256: str, predicate_type: str, predicate: Mapping[str, object]
) -> dict[str, object]:
    return {
        "_type": STATEMENT_TYPE,
        "subject": [_descriptor(SUBJECT, diff_sha256)],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def _descriptor(name: str, sha256: str) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": sha256}}


def _dump(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode("ascii")


def _cleanup(attested: Attested) -> list[dict[str, object]]:
    """Tell after which child processes were cleared, how many were found, by what proof."""
    names = ("after", "found", "level")
    return [
        {name: record.fields.get(name) for name in names}
        for record in attested.segment
        if record.event == "processes_cleared"
        and record.fields.get("attempt_id") == attested.identity.attempt_id
    ]


def _config_digest(attested: Attested) -> object:
    frozen = [record for record in attested.segment if record.event == "model_frozen"]
    return frozen[-1].fields.get("config_sha256") if frozen else None


def _line(record: Record) -> str:
    before = Head(record.seq - 1, record.prev)
    return encode_record(before, record.time, record.event, record.fields).decode("ascii")


def _follow(lines: list[str]) -> tuple[Record, ...]:
    records = tuple(
        decode_record(line.encode("ascii"), f"log line {number}")
        for number, line in enumerate(lines, 1)
    )
    if records[0].event != MINTED:
        raise ValueError(f"log: expected {MINTED} first, got {records[0].event}")
    for before, record in pairwise(records):
        if (record.seq, record.prev) != (before.seq + 1, before.sha256):
            raise ValueError(f"log: expected the record after {before.seq}, got {record.seq}")
    return records
