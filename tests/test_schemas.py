from __future__ import annotations

import base64
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from attempt_runner.statement import PREDICATE_TYPE, PROJECT_URI
from bootstrap.bind_receipt import (
    Identity,
    ReceiptInputError,
    RejectedError,
    StrictJsonError,
    build_receipt,
    load_json,
    parse_receipt,
)
from tests.signing import make_signed, statement_of

NAMES: Final = ("agent-attempt", "decision", "log-line", "receipt")
GOLDEN: Final = Path(__file__).parent / "golden"
# What no schema can say: which characters show, and that 1.0 is not spelled as 1 is.
FINER: Final = {"reasons--zero-width", "receipt_version--float"}


def _schema(name: str) -> dict[str, Any]:
    path = files("attempt_runner") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(path.read_bytes())
    return schema


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = _schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def _is_valid(name: str, document: object) -> bool:
    return _validator(name).is_valid(document)


def test_every_schema_is_sound_and_named_under_one_uri() -> None:
    """The package ships four, and the predicate's has the predicate type as its name."""
    place = files("attempt_runner") / "schemas"
    assert sorted(item.name for item in place.iterdir()) == [
        f"{name}.schema.json" for name in NAMES
    ]
    for name in NAMES:
        assert _validator(name)
    ids = [_schema(name)["$id"] for name in NAMES]
    assert all(text.startswith(f"{PROJECT_URI}/") for text in ids)
    assert ids[0] == PREDICATE_TYPE


def test_all_that_a_job_writes_is_valid(tmp_path: Path) -> None:
    """Receipt, decisions of both kinds, every log line and the predicate."""
    signed = make_signed(tmp_path)
    predicate = statement_of(signed.attest(tmp_path / "a.json"))["predicate"]
    _validator("agent-attempt").validate(predicate)
    job = signed.job
    job.run("--base", str(job.base), "--agent", job.agent(), scorer=job.scorer("fail"))
    assert len(job.attempts) == 2
    for attempt in job.attempts:
        for name in ("receipt", "decision"):
            _validator(name).validate(json.loads((attempt / f"{name}.json").read_bytes()))
    for line in job.log:
        _validator("log-line").validate(line)


@pytest.mark.parametrize(
    "path", sorted((GOLDEN / "receipts").glob("*--*.json")), ids=lambda path: path.stem
)
def test_the_receipts_schema_and_the_binder_agree(path: Path) -> None:
    """What the schema takes the binder could have written, and the other way round."""
    data = path.read_bytes()
    try:
        document = load_json(data)
    except StrictJsonError:
        return  # a schema judges what was parsed
    assert _is_valid("receipt", document) == (_is_well_formed(data) or path.stem in FINER)


def test_the_predicates_schema_takes_the_golden_one() -> None:
    """It is the form, and not this runner's own output alone, that the schema describes."""
    predicate = _golden("accept--ecdsa-p256")
    assert _is_valid("agent-attempt", predicate)
    for key in predicate:
        assert not _is_valid("agent-attempt", {k: v for k, v in predicate.items() if k != key})
    assert not _is_valid("agent-attempt", predicate | {"more": 1})
    assert not _is_valid("agent-attempt", _golden("attestation--receipt-object"))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("log-line", {"seq": 0, "prev": "0" * 64, "time": "x", "event": "e"}),
        ("log-line", {"seq": 1, "prev": "0" * 64 + "\n", "time": "x", "event": "e"}),
        ("decision", {"decision": "accept"}),
    ],
)
def test_other_documents_are_refused(name: str, document: object) -> None:
    """A schema that takes everything would tell a reader nothing."""
    assert not _is_valid(name, document)


def _golden(name: str) -> dict[str, Any]:
    document = json.loads((GOLDEN / "attestations" / f"{name}.json").read_bytes())
    predicate: dict[str, Any] = json.loads(base64.b64decode(document["payload"]))["predicate"]
    return predicate


def _is_well_formed(data: bytes) -> bool:
    try:
        receipt = parse_receipt(data)
        identity = Identity(
            receipt.diff_sha256,
            receipt.prompt_sha256,
            receipt.model_id,
            receipt.workspace_generation,
            receipt.attempt_id,
        )
        build_receipt(identity, receipt.verdict, receipt.reasons, receipt.evidence)
    except (RejectedError, ReceiptInputError):
        return False
    return True
