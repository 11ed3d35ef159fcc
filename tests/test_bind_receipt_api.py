"""What other modules import of the binder: parse, judge, build."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bootstrap.bind_receipt import (
    MAX_REASON_CHARS,
    MAX_REASONS,
    REJECT_NAMES,
    Identity,
    ReceiptInputError,
    RejectedError,
    build_receipt,
    judge,
    parse_receipt,
)
from tests.binder import DEFECTS, GOLDEN, SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping

DIFF, PROMPT = SUMS["patch.diff"], SUMS["prompt.md"]
GOOD = (GOLDEN / "accept--all-fields.json").read_bytes()
BOUND = ("diff_sha256", "prompt_sha256", "model_id", "workspace_generation", "attempt_id")


def identity(**changes: str | None) -> Identity:
    """Return the identity of the golden receipts, changed as told."""
    fields: dict[str, str | None] = {
        "diff_sha256": DIFF,
        "prompt_sha256": PROMPT,
        "model_id": "model-a",
        "workspace_generation": "gen-1",
        "attempt_id": "att-1",
        **changes,
    }
    return Identity(**fields)  # type: ignore[arg-type]  # a caller without mypy can pass None


def fields_of(data: bytes, expected: Identity) -> tuple[str, ...]:
    """Return the names that the bytes are rejected with, none if they are accepted."""
    try:
        judge(parse_receipt(data), expected)
    except RejectedError as error:
        return error.fields
    return ()


@pytest.mark.parametrize("name", DEFECTS)
def test_defect(name: str) -> None:
    """A receipt with one defect is rejected for that defect and for nothing else."""
    attempt = "att-1" if name.startswith("attempt_id--") else None
    expected = name.partition("--")[0].replace("accept", "")
    found = fields_of((GOLDEN / name).read_bytes(), identity(attempt_id=attempt))
    assert ",".join(found) == expected


@pytest.mark.parametrize("field", BOUND)
@pytest.mark.parametrize("value", ["", " ", "-", "model-b", "0" * 64])
def test_another_or_malformed_expectation_is_never_equal(field: str, value: str) -> None:
    """What the caller expects is no wildcard, even when the receipt says the same."""
    assert fields_of(GOOD, identity()) == ()
    same = json.dumps({**json.loads(GOOD), field: value}).encode()
    assert fields_of(GOOD, identity(**{field: value})) == (field,)
    if value in {"", " ", "-"}:
        assert fields_of(same, identity(**{field: value})) == (field,)


@pytest.mark.parametrize("field", BOUND[:-1])
def test_expectation_of_none_is_never_equal(field: str) -> None:
    """Only an attempt id may be unknown; no other None means that a field is not judged."""
    assert fields_of(GOOD, identity(**{field: None})) == (field,)


def test_rejected_fields_stand_in_the_order_of_the_list() -> None:
    """However they were found, once each."""
    assert RejectedError(reversed(REJECT_NAMES * 2)).fields == REJECT_NAMES
    assert str(RejectedError(["reasons", "model_id"])) == "reject: model_id,reasons"


def test_receipt_over_the_size_limit_is_not_parsed() -> None:
    """The bytes are judged by their number first, whoever read them."""
    assert fields_of(GOOD + b" " * 1024 * 1024, identity()) == ("receipt_file",)


def test_built_receipt_is_accepted_and_stable() -> None:
    """Sorted, indented ASCII with a final newline, the same bytes each time."""
    evidence = {"tier": "none", "nested": [{"b": None, "a": 1.5}]}
    reasons = ["caf\u00e9 \x1b[2K \u202e", "second"]
    data = build_receipt(identity(), "pass", reasons, evidence)
    assert fields_of(data, identity()) == ()
    assert data == (json.dumps(json.loads(data), indent=2, sort_keys=True) + "\n").encode("ascii")
    receipt = parse_receipt(data)
    assert receipt.reasons == tuple(reasons)
    assert receipt.evidence == evidence
    assert receipt.attempt_id == "att-1"
    assert data == build_receipt(identity(), "pass", reasons, evidence)


def test_fail_is_built_and_never_accepted() -> None:
    """A fail is bound like a pass."""
    data = build_receipt(identity(), "fail", ["no"])
    assert parse_receipt(data).verdict == "fail"
    assert fields_of(data, identity()) == ("verdict",)


CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"identity": identity(model_id="")}, "model_id"),
        ({"identity": identity(model_id="a b")}, "model_id"),
        ({"identity": identity(model_id=None)}, "model_id"),
        ({"identity": identity(workspace_generation="gen\n")}, "workspace_generation"),
        ({"identity": identity(attempt_id="")}, "attempt_id"),
        ({"identity": identity(diff_sha256=DIFF.upper())}, "diff_sha256"),
        ({"identity": identity(prompt_sha256=DIFF[:-1])}, "prompt_sha256"),
        ({"verdict": "PASS"}, "verdict"),
        ({"verdict": ""}, "verdict"),
        ({"reasons": []}, "reasons"),
        ({"reasons": ["ok", ""]}, "reasons"),
        ({"reasons": ["\u200b"]}, "reasons"),
        ({"reasons": ["ok", 1]}, "reasons"),
        ({"reasons": ["ok"] * (MAX_REASONS + 1)}, "reasons"),
        ({"reasons": ["x" * (MAX_REASON_CHARS + 1)]}, "reasons"),
        ({"reasons": ["\ud800"]}, "receipt_json"),
        ({"reasons": ["\N{GRINNING FACE}" * MAX_REASON_CHARS] * 22}, "receipt_file"),
        ({"evidence": {"value": float("nan")}}, "receipt"),
        ({"evidence": {"value": object()}}, "receipt"),
        ({"evidence": CYCLE}, "receipt"),
        ({"evidence": {1: "a", "1": "b"}}, "receipt"),
        ({"evidence": {"value": 10**5000}}, "receipt"),
        ({"evidence": ["no object"]}, "receipt_type"),
    ],
)
def test_build_refuses(changes: Mapping[str, object], names: str) -> None:
    """Nothing is written that could not be read back and accepted; the refusal is one line."""
    arguments = {"identity": identity(), "verdict": "pass", "reasons": ["ok"], **changes}
    with pytest.raises(ReceiptInputError) as caught:
        build_receipt(**arguments)  # type: ignore[arg-type]  # the point is what mypy refuses
    assert str(caught.value).startswith(f"{names}: expected ")
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def test_each_flipped_bit_of_a_receipt_keeps_its_meaning_or_rejects() -> None:
    """No flip makes another binding; a flip inside a reason leaves the binding as it was."""
    original = json.loads(GOOD)
    accepted = 0
    for place in range(len(GOOD)):
        for bit in range(8):
            data = bytearray(GOOD)
            data[place] ^= 1 << bit
            if not fields_of(bytes(data), identity()):
                accepted += 1
                found = json.loads(data)
                assert all(found[name] == original[name] for name in (*BOUND, "verdict"))
    assert 0 < accepted < len(GOOD) * 8 / 4


def test_receipt_cut_at_each_byte_rejects() -> None:
    """Only the final newline may be missing."""
    for size in range(len(GOOD) - 1):
        assert fields_of(GOOD[:size], identity()) == ("receipt_json",)
    assert fields_of(GOOD[:-1], identity()) == ()
