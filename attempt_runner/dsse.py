"""DSSE envelopes: sign a payload, and open an envelope to the payload that was signed.

Source: the DSSE protocol and envelope 1.0, and for `bundle` the Sigstore bundle 0.3.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.keys import BadSignatureError
from bootstrap.bind_receipt import StrictJsonError, load_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from attempt_runner.keys import PublicKey, SigningKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
BUNDLE_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_ENVELOPE_BYTES: Final = (
    16 * 1024 * 1024
)  # a receipt of 1 MiB and a generation's log, twice over


class EnvelopeError(ValueError):
    """The bytes are not an envelope that this key signed; `expected` tells the difference."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, got {found}")
        self.expected = expected
        self.found = found


def pae(payload: bytes) -> bytes:
    """Return what is signed for a payload of our type: its pre-authentication encoding."""
    kind = PAYLOAD_TYPE.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal_envelope(payload: bytes, key: SigningKey) -> dict[str, object]:
    """Sign a payload and return its envelope."""
    signature = key.sign(pae(payload))
    return {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": key.public.keyid, "sig": base64.b64encode(signature).decode("ascii")}
        ],
    }


def bundle(envelope: Mapping[str, object], keyid: str) -> dict[str, object]:
    """Return a Sigstore bundle of an envelope whose key the verifier knows by its hint.

    It holds no transparency log entry and no timestamp: a verifier has to ask for none.
    """
    return {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": keyid}, "tlogEntries": []},
        "dsseEnvelope": envelope,
    }


def encode(document: Mapping[str, object]) -> bytes:
    """Return the bytes of an envelope or a bundle: one line, sorted, with a final newline."""
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode("ascii") + b"\n"


def open_envelope(data: bytes, key: PublicKey) -> bytes:
    """Return the payload of an envelope, or of a bundle of one, that this key signed.

    1. At most MAX_ENVELOPE_BYTES of strict JSON. 2. An envelope, with no key beside its own.
    3. Our payload type. 4. Exactly one signature, and it is this key's. The key id in it is
    not looked at, nor is the hint of a bundle. Raises EnvelopeError.
    """
    if len(data) > MAX_ENVELOPE_BYTES:  # 1
        raise EnvelopeError(f"at most {MAX_ENVELOPE_BYTES} bytes", "more")
    try:
        document = load_json(data)
    except StrictJsonError as error:
        raise EnvelopeError("strict JSON", str(error)) from error
    envelope = _table(_unwrap(document), "an envelope", {"payload", "payloadType", "signatures"})
    if envelope["payloadType"] != PAYLOAD_TYPE:  # 3
        raise EnvelopeError(f"payload type {PAYLOAD_TYPE}", str(envelope["payloadType"]))
    payload = _bytes(envelope["payload"], "the payload")
    _require_signed(payload, envelope["signatures"], key)  # 4
    return payload


def _unwrap(document: object) -> object:
    if not isinstance(document, dict) or "mediaType" not in document:
        return document
    keys = {"mediaType", "verificationMaterial", "dsseEnvelope"}
    if _table(document, "a bundle", keys)["mediaType"] != BUNDLE_TYPE:
        raise EnvelopeError(f"media type {BUNDLE_TYPE}", str(document["mediaType"]))
    return document["dsseEnvelope"]


def _require_signed(payload: bytes, signatures: object, key: PublicKey) -> None:
    if not isinstance(signatures, list) or len(signatures) != 1:
        found = f"{len(signatures)}" if isinstance(signatures, list) else "no array"
        raise EnvelopeError("exactly one signature", found)
    signature = _table(signatures[0], "a signature", {"sig"}, optional={"keyid"})
    if not isinstance(signature.get("keyid", ""), str):
        raise EnvelopeError("a text as keyid", "another type")
    try:
        key.verify(_bytes(signature["sig"], "the signature"), pae(payload))
    except BadSignatureError as error:
        raise EnvelopeError(f"a signature by key {key.keyid}", "another") from error


def _table(
    value: object, what: str, required: AbstractSet[str], optional: AbstractSet[str] = frozenset()
) -> dict[str, Any]:
    if not isinstance(value, dict) or not required <= value.keys() <= required | optional:
        keys = ", ".join(sorted(value)) if isinstance(value, dict) else "no object"
        raise EnvelopeError(f"{what}: an object with {', '.join(sorted(required))}", keys)
    return value


def _bytes(value: object, what: str) -> bytes:
    """Decode base64 in the one spelling that its bytes have in either alphabet.

    A decoder that skips what it does not know gives many texts the same bytes.
    """
    if isinstance(value, str) and value:
        for alphabet in (b"+/", b"-_"):
            try:
                decoded = base64.b64decode(value, alphabet, validate=True)
            except (binascii.Error, ValueError):
                continue
            if base64.b64encode(decoded, alphabet).decode("ascii") == value:
                return decoded
    raise EnvelopeError(f"{what} in base64", "other text")
