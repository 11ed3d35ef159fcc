#!/usr/bin/env python3
"""Bind an evaluation receipt to the attempt it judged, and verify that binding.

One file, standard library only, Python 3.9 or newer: copied alone into an image it works
as `python3 -I bind_receipt.py`; installed it is `bind-receipt`.

In: a diff, a prompt, a receipt or a list of reasons, all of them written by somebody who
may be hostile, and the identity that the caller expects. Out: one verdict line, or a
receipt. Not checked: who wrote the receipt. Whoever can write one can write a matching one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from io import FileIO
    from typing import TextIO

MAX_RECEIPT_BYTES: Final = 1024 * 1024  # a receipt is read whole
MAX_REASONS: Final = 1000
MAX_REASON_CHARS: Final = 4096
MAX_DEPTH: Final = 64  # levels of JSON: far from any interpreter's recursion limit
MAX_INTEGER_CHARS: Final = 640  # the lowest limit an interpreter may be set to (CVE-2020-10735)
CHUNK: Final = 64 * 1024  # one reused buffer of this size hashes fastest and bounds memory
SHOWN_LIMIT: Final = 200  # characters of untrusted text that one message may carry

REJECT_NAMES: Final = (
    "missing_receipt",
    "receipt_file",
    "receipt_json",
    "receipt_type",
    "receipt_keys",
    "receipt_version",
    "diff_file",
    "prompt_file",
    "diff_sha256",
    "prompt_sha256",
    "model_id",
    "workspace_generation",
    "attempt_id",
    "verdict",
    "reasons",
)
VERDICTS: Final = ("pass", "fail")

_REQUIRED_KEYS: Final = {
    "diff_sha256",
    "prompt_sha256",
    "model_id",
    "workspace_generation",
    "verdict",
    "reasons",
}
_OPTIONAL_KEYS: Final = {"attempt_id", "receipt_version", "evidence"}
_IDENTIFIER: Final = re.compile(r"(?!-)[!-~]{1,256}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
# A FIFO without a writer, or a device, must not hang the open.
_READ_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class RejectedError(Exception):
    """The binder's no: `fields` holds names of REJECT_NAMES, in that order, and no data."""

    def __init__(self, fields: Iterable[str]) -> None:
        found = set(fields)
        self.fields = tuple(name for name in REJECT_NAMES if name in found)
        super().__init__("reject: " + ",".join(self.fields))


class ReceiptInputError(ValueError):
    """What the caller gave makes no receipt and no check; `str()` is one printable line."""


class StrictJsonError(ValueError):
    """The bytes are not strict JSON."""


# Strict JSON


def load_json(data: bytes) -> object:
    """Parse one strict JSON document (RFC 8259), raising StrictJsonError and nothing else.

    Refused beyond the RFC: a byte order mark, a key given twice in one object however it is
    spelled, NaN, Infinity and numbers that overflow to it, integers of more than
    MAX_INTEGER_CHARS, more than MAX_DEPTH levels, and strings that cannot be written as
    UTF-8. The caller bounds the size.
    """
    try:
        value = _DECODER.decode(data.decode("utf-8"))
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _require_shallow(value)
        if b"\\u" in data:  # only an escape can bring a lone surrogate past the UTF-8 decoder
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise StrictJsonError(f"json: expected at most {MAX_DEPTH} levels, got more") from error
    except ValueError as error:
        raise StrictJsonError(f"json: expected strict UTF-8 JSON, got {error}") from error
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key that is given twice")
    return table


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_CHARS:
        raise ValueError(f"an integer of {len(text)} characters")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number beyond the range of a double")
    return number


def _no_constant(name: str) -> object:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_integer,
    parse_float=_finite,
    parse_constant=_no_constant,
)


def _require_shallow(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [node for node in level if isinstance(node, (dict, list))]
        if not containers:
            return
        level = [
            child
            for node in containers
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    raise ValueError(f"more than {MAX_DEPTH} levels")


# Receipts


class Identity(NamedTuple):
    """What a receipt must be bound to; digests are lower-case hex sha256.

    `attempt_id` None means that the caller knows no attempt: the receipt's own is then not
    judged.
    """

    diff_sha256: str
    prompt_sha256: str
    model_id: str
    workspace_generation: str
    attempt_id: str | None


class Receipt(NamedTuple):
    """The fields of a receipt of a known shape. Nothing here is trusted before `judge`.

    A value of the wrong type stands as an empty one, which nothing is ever equal to.
    """

    diff_sha256: str
    prompt_sha256: str
    model_id: str
    workspace_generation: str
    attempt_id: str | None
    verdict: str
    reasons: tuple[str, ...]
    evidence: dict[str, object] | None


def is_identifier(text: object) -> bool:
    """Tell whether `text` is 1 to 256 visible ASCII characters that do not begin with `-`."""
    return isinstance(text, str) and _IDENTIFIER.fullmatch(text) is not None


def parse_receipt(data: bytes) -> Receipt:
    """Return the receipt that the bytes hold; judge it afterwards.

    Raises RejectedError with one name. Checked in this order: 1 size (`receipt_file`),
    2 strict JSON (`receipt_json`), 3 an object whose evidence is an object (`receipt_type`),
    4 no key missing or unknown (`receipt_keys`), 5 the version (`receipt_version`).
    """
    if len(data) > MAX_RECEIPT_BYTES:  # 1
        raise RejectedError(["receipt_file"])
    try:
        fields = load_json(data)  # 2
    except StrictJsonError as error:
        raise RejectedError(["receipt_json"]) from error
    if not isinstance(fields, dict) or not isinstance(fields.get("evidence", {}), dict):  # 3
        raise RejectedError(["receipt_type"])
    if not _REQUIRED_KEYS <= fields.keys() <= _REQUIRED_KEYS | _OPTIONAL_KEYS:  # 4
        raise RejectedError(["receipt_keys"])
    version = fields.get("receipt_version", 1)
    if type(version) is not int or version != 1:  # 5: True equals 1, and is no version
        raise RejectedError(["receipt_version"])
    return Receipt(
        diff_sha256=_text(fields["diff_sha256"]),
        prompt_sha256=_text(fields["prompt_sha256"]),
        model_id=_text(fields["model_id"]),
        workspace_generation=_text(fields["workspace_generation"]),
        attempt_id=_text(fields["attempt_id"]) if "attempt_id" in fields else None,
        verdict=_text(fields["verdict"]),
        reasons=_texts(fields["reasons"]),
        evidence=fields.get("evidence"),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return ()


def judge(receipt: Receipt, identity: Identity) -> None:
    """Return if the receipt is a pass that is bound to this identity.

    Raises RejectedError with every field that differs. An expected value that is itself
    malformed differs from everything.
    """
    expected_attempt = identity.attempt_id
    holds = {
        "diff_sha256": _is_digest(identity.diff_sha256)
        and receipt.diff_sha256 == identity.diff_sha256,
        "prompt_sha256": _is_digest(identity.prompt_sha256)
        and receipt.prompt_sha256 == identity.prompt_sha256,
        "model_id": is_identifier(identity.model_id) and receipt.model_id == identity.model_id,
        "workspace_generation": is_identifier(identity.workspace_generation)
        and receipt.workspace_generation == identity.workspace_generation,
        "attempt_id": expected_attempt is None
        or (is_identifier(expected_attempt) and receipt.attempt_id == expected_attempt),
        "verdict": receipt.verdict == "pass",
        "reasons": _are_reasons(receipt.reasons),
    }
    if not all(holds.values()):
        raise RejectedError(name for name, held in holds.items() if not held)


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def _are_reasons(reasons: Sequence[object]) -> bool:
    return 1 <= len(reasons) <= MAX_REASONS and all(map(_is_reason, reasons))


def _is_reason(text: object) -> bool:
    # Spaces, control characters and zero-width marks alone show a reader nothing.
    return (
        isinstance(text, str)
        and len(text) <= MAX_REASON_CHARS
        and any(char.isprintable() and not char.isspace() for char in text)
    )


def build_receipt(
    identity: Identity,
    verdict: str,
    reasons: Sequence[str],
    evidence: Mapping[str, object] | None = None,
) -> bytes:
    """Return the bytes of a receipt: sorted, indented ASCII JSON with a final newline.

    Raises ReceiptInputError for anything that `parse_receipt` would refuse to read back, or
    that `judge` would hold against the receipt whatever identity it is compared with.
    """
    if verdict not in VERDICTS:
        raise _refusal("verdict", "pass or fail", verdict)
    fields = {**identity._asdict(), "verdict": verdict, "reasons": list(reasons)}
    if identity.attempt_id is None:
        del fields["attempt_id"]
    if evidence is not None:
        fields["evidence"] = evidence
    try:
        text = json.dumps(fields, indent=2, sort_keys=True, allow_nan=False)
        data = text.encode("ascii") + b"\n"
        judge(parse_receipt(data)._replace(verdict="pass"), identity)
    except RejectedError as error:
        name = error.fields[0]
        raise _refusal(name, _RULES[name], fields.get(name, "other data")) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal("receipt", "values that JSON can hold", error) from error
    return data


_ID_RULE: Final = "1 to 256 visible ASCII characters, no space, not beginning with '-'"
_DIGEST_RULE: Final = "64 lower-case hex digits"
_RULES: Final = {
    "receipt_file": f"at most {MAX_RECEIPT_BYTES} bytes in all",
    "receipt_json": "values that strict JSON can hold",
    "receipt_type": "an object as evidence",
    "diff_sha256": _DIGEST_RULE,
    "prompt_sha256": _DIGEST_RULE,
    "model_id": _ID_RULE,
    "workspace_generation": _ID_RULE,
    "attempt_id": _ID_RULE,
    "reasons": f"1 to {MAX_REASONS} strings of at most {MAX_REASON_CHARS} characters, none blank",
}


def _refusal(what: str, expected: str, got: object) -> ReceiptInputError:
    return ReceiptInputError(f"{what}: expected {expected}, got {_shown(got)}")


def _shown(value: object) -> str:
    text = ascii(str(value))
    return text if len(text) <= SHOWN_LIMIT else text[:SHOWN_LIMIT] + "..."


# Files


def digest_file(path: str | os.PathLike[str], *, follow_links: bool) -> str:
    """Return the hex sha256 of a regular file that is not empty.

    Reads once, in chunks, and no further than the size that the file had when it was opened:
    a file that somebody keeps growing does not hold the reader. Raises OSError, or ValueError
    for a file of another kind, an empty one, and one whose size changes while it is read.
    """
    digest = hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with _open_regular(path, follow_links=follow_links) as file:
        left = os.fstat(file.fileno()).st_size
        if left == 0:
            raise ValueError("an empty file")
        while left > 0 and (count := file.readinto(buffer)):
            digest.update(view[:count])
            left -= count
        if left != 0 or file.read(1):
            raise ValueError("a file that changes while it is read")
    return digest.hexdigest()


def _open_regular(path: str | os.PathLike[str], *, follow_links: bool) -> FileIO:
    flags = _READ_FLAGS if follow_links else _READ_FLAGS | os.O_NOFOLLOW
    file = open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("a file that is not regular")
    return file


def _read_capped(file: FileIO) -> bytes:
    data = bytearray()
    while chunk := file.read(MAX_RECEIPT_BYTES + 1 - len(data)):
        data += chunk
    if len(data) > MAX_RECEIPT_BYTES:
        raise ValueError(f"more than {MAX_RECEIPT_BYTES} bytes")
    return bytes(data)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    raise NotImplementedError
