from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.attest import AgeLimit, verify_attestation
from attempt_runner.dsse import MAX_ENVELOPE_BYTES
from bootstrap.errors import RefusalError
from tests.attestations import ATTEMPT, DIFF, GOLDEN, PROMPT, expectations, golden_key

if TYPE_CHECKING:
    from attempt_runner.attest import Expected
    from attempt_runner.keys import PublicKey

FILES: Final = sorted(path.name.removesuffix(".json") for path in GOLDEN.glob("*--*.json"))
GOOD: Final = [name for name in FILES if name.startswith("accept--")]
BAD: Final = [name for name in FILES if name not in GOOD]
SIGNED_BY: Final = {"accept--ed25519": "ed25519"}
ACCEPTED_AT: Final = datetime(2026, 11, 30, 21, 45, 17, tzinfo=UTC)


def _read(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def _key_of(name: str) -> PublicKey:
    return golden_key(SIGNED_BY.get(name, "ecdsa-p256"))


def _refused_fields(
    data: bytes, key: PublicKey, expected: Expected | None = None
) -> tuple[str, ...]:
    with pytest.raises(RefusalError) as refused:
        verify_attestation(data, key, expected or expectations())
    return refused.value.fields


@pytest.mark.parametrize("name", GOOD)
def test_a_good_attestation_is_accepted(name: str) -> None:
    """What openssl signed over a statement written by hand is one of ours, in every spelling."""
    assert verify_attestation(_read(name), _key_of(name), expectations()).attempt_id == ATTEMPT


@pytest.mark.parametrize("name", BAD)
def test_a_bad_attestation_is_refused_by_name(name: str) -> None:
    """Each file has one defect, and the fields that its name begins with are the answer."""
    assert ",".join(_refused_fields(_read(name), _key_of(name))) == name.partition("--")[0]


def test_the_golden_files_are_all_there() -> None:
    """A lost directory would leave nothing to refuse."""
    assert (len(GOOD), len(BAD)) == (6, 75)


@pytest.mark.parametrize(("name", "step"), [("accept--ed25519", 1), ("accept--ecdsa-p256", 7)])
def test_every_changed_byte_of_payload_and_signature_is_refused(name: str, step: int) -> None:
    """No byte of what was signed, nor of the signature, can be another."""
    text, key = _read(name).decode(), _key_of(name)
    document = json.loads(text)
    for spelled, pace in ((document["payload"], step), (document["signatures"][0]["sig"], 1)):
        good = base64.b64decode(spelled)
        for place in range(0, len(good), pace):
            changed = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
            data = text.replace(spelled, base64.b64encode(changed).decode()).encode()
            assert _refused_fields(data, key) == ("attestation",), place


def test_an_attestation_that_was_cut_is_refused() -> None:
    """Half an attestation is none, and neither is one that lacks a byte."""
    data = _read("accept--ecdsa-p256").rstrip()
    for length in (*range(0, len(data), 11), *range(len(data) - 80, len(data))):
        assert _refused_fields(data[:length], _key_of("")) == ("attestation",)


def test_the_other_kind_of_key_does_not_verify() -> None:
    """The key fixes the scheme: a signature cannot choose one."""
    for name, other in (("accept--ecdsa-p256", "ed25519"), ("accept--ed25519", "ecdsa-p256")):
        assert _refused_fields(_read(name), golden_key(other)) == ("attestation",)


def test_an_envelope_over_the_limit_is_refused() -> None:
    """White space is JSON too, and must not fill the memory."""
    data = _read("accept--ecdsa-p256")
    padded = data + b" " * (MAX_ENVELOPE_BYTES + 1 - len(data))
    assert _refused_fields(padded, _key_of("")) == ("attestation",)
    assert verify_attestation(padded[:-1], _key_of(""), expectations())


@pytest.mark.parametrize("field", ["model_id", "workspace_generation", "attempt_id"])
def test_what_the_caller_knows_is_compared(field: str) -> None:
    """An attestation of another attempt, generation or model is good, and not the one meant."""
    data, key = _read("accept--ecdsa-p256"), _key_of("")
    assert _refused_fields(data, key, expectations({field: "another"})) == (field,)


def test_the_live_diff_is_compared() -> None:
    """The attestation is about one diff, whatever lies there now."""
    data, another = _read("accept--ed25519"), expectations(diff=PROMPT)
    assert _refused_fields(data, golden_key("ed25519"), another) == ("diff_sha256",)
    assert DIFF.read_bytes() != PROMPT.read_bytes()


def test_requirements_are_those_of_the_gate() -> None:
    """What the runner recorded can be demanded on another host too."""
    data, key = _read("accept--ecdsa-p256"), _key_of("")
    kept = {"scored": "tree", "agent": "isolated", "reads": None}
    assert verify_attestation(data, key, expectations(requirements=kept))
    lacking = expectations(requirements={"signals": None})
    assert _refused_fields(data, key, lacking) == ("isolation",)


@pytest.mark.parametrize(
    ("passed", "young"), [(-61, False), (-60, True), (0, True), (3600, True), (3601, False)]
)
def test_an_age_can_only_refuse(passed: int, young: bool) -> None:  # noqa: FBT001 - a case
    """An hour is an hour, and a clock that runs ahead makes no attestation younger."""
    age = AgeLimit(ACCEPTED_AT + timedelta(seconds=passed), timedelta(hours=1))
    data, key = _read("accept--ecdsa-p256"), _key_of("")
    if young:
        assert verify_attestation(data, key, expectations(age=age))
    else:
        assert _refused_fields(data, key, expectations(age=age)) == ("attestation",)
