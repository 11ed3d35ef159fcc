"""Checkpoints: a signed statement of how long a job log is and how it ends.

A chain without a key cannot show that its end was cut off together with its head, or that all
of it was written anew. Who kept a checkpoint can show both.

The form is a C2SP signed note of three lines: origin, number of records, and the sha256 of
the last line in base64. The origin names the log by the digest of its first line. It is no
tlog-checkpoint: the hash is the head of a chain, not the root of a Merkle tree.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attempt_runner.keys import BadSignatureError
from attempt_runner.statement import PROJECT_URI
from bootstrap.chain import Head, chain_error
from bootstrap.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from attempt_runner.keys import PublicKey, SigningKey
    from bootstrap.joblog import Record

MAX_CHECKPOINT_BYTES: Final = 64 * 1024
MAX_SIGNATURES: Final = 64  # the note's specification asks for 16 at least

# signed-note, "Signature types"
_ED25519: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_TEXT: Final = re.compile(r"([!-*,-~]+)\n([1-9][0-9]{0,17})\n([A-Za-z0-9+/]{43}=)\n")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SIGNATURE: Final = re.compile("\N{EM DASH} ([^ \n+]+) ([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a log stood: its origin, and the number and digest of its last record."""

    origin: str
    head: Head

    @property
    def text(self) -> str:
        """What is signed."""
        digest = base64.b64encode(bytes.fromhex(self.head.sha256)).decode("ascii")
        return f"{self.origin}\n{self.head.seq}\n{digest}\n"


def take_checkpoint(log: Iterable[Record]) -> Checkpoint:
    """Return where a log ends, read from its first record on. Raises ConfigurationError."""
    records = iter(log)
    first = next(records, None)
    if first is None:
        remedy = "run a job first"
        raise ConfigurationError("job log", expected="a record", found="none", remedy=remedy)
    last = deque(records, maxlen=1)
    return Checkpoint(_origin(first), last[0].head if last else first.head)


def sign_checkpoint(checkpoint: Checkpoint, key: SigningKey) -> bytes:
    """Return the checkpoint as a note signed under its own origin as the key's name."""
    signature = key.sign(checkpoint.text.encode("utf-8"))
    note_signature = _key_id(checkpoint.origin, key.public) + signature
    encoded = base64.b64encode(note_signature).decode("ascii")
    return f"{checkpoint.text}\n\N{EM DASH} {checkpoint.origin} {encoded}\n".encode()


def open_checkpoint(data: bytes, key: PublicKey) -> Checkpoint:
    """Return the checkpoint of a note that this key signed.

    1. UTF-8 without control characters. 2. At least one signature is by this key under the
    origin's name, and each that claims to be is good; others are not looked at. 3. The text is
    one of ours, in its one spelling. Raises ConfigurationError.
    """
    try:
        text, _, signatures = _printable(data).rpartition("\n\n")  # 1
        _require_signed(f"{text}\n", signatures.split("\n"), key)  # 2
        return _parse(f"{text}\n")  # 3
    except (BadSignatureError, ValueError) as error:
        raise ConfigurationError(
            "checkpoint",
            expected=f"a note of ours, signed by key {key.keyid}",
            found=str(error) or "a bad signature",
            remedy="give the file that `log --checkpoint` wrote, and that key's public half",
        ) from error


def require_extension(checkpoint: Checkpoint, log: Iterator[Record], path: str) -> int:
    """Verify that a log extends what a checkpoint tells; return how many records it has.

    `log` verifies the chain itself as it is read. Raises LogChainError when the log is
    another one, ends before the checkpoint, or tells another story up to it.
    """
    expected, count = checkpoint.head, 0
    for count, record in enumerate(log, 1):
        if count == 1 and _origin(record) != checkpoint.origin:
            raise chain_error(path, f"the log {checkpoint.origin}", _origin(record))
        if count == expected.seq and record.head != expected:
            where = f"{path} line {count}"
            expectation = f"sha256 {expected.sha256} as the checkpoint says"
            raise chain_error(where, expectation, record.sha256)
    if count < expected.seq:
        where = f"{path} line {count + 1}"
        raise chain_error(where, f"{expected.seq} lines as the checkpoint says", "the end")
    return count


def _origin(first: Record) -> str:
    # The first line names a generation or an attempt, so 128 random bits: no two logs share it.
    return f"{urlsplit(PROJECT_URI).netloc}/job-log/{first.sha256}"


def _printable(data: bytes) -> str:
    note = data.decode("utf-8")
    if _CONTROL.search(note):
        raise ValueError("a control character")
    return note


def _require_signed(text: str, signatures: list[str], key: PublicKey) -> None:
    *lines, end = signatures
    if end or not 1 <= len(lines) <= MAX_SIGNATURES:
        raise ValueError(f"{len(lines)} signature lines")
    name = text.partition("\n")[0]
    known = _key_id(name, key)
    found = [_split(line) for line in lines]
    ours = [value for signer, value in found if (signer, value[:_KEY_ID_BYTES]) == (name, known)]
    if not ours:
        raise ValueError("no signature by this key")
    for value in ours:
        key.verify(value[_KEY_ID_BYTES:], text.encode("utf-8"))


def _split(line: str) -> tuple[str, bytes]:
    match = _SIGNATURE.fullmatch(line)
    if match is None:
        raise ValueError("a line that is no signature")
    try:
        value = base64.b64decode(match[2], validate=True)
    except binascii.Error as error:
        raise ValueError("a signature that is not base64") from error
    if base64.b64encode(value).decode("ascii") != match[2]:  # spare bits at the end
        raise ValueError("a signature in another spelling of base64")
    return match[1], value


def _parse(text: str) -> Checkpoint:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError("another text than origin, size and hash")
    digest = base64.b64decode(match[3], validate=True).hex()
    checkpoint = Checkpoint(match[1], Head(int(match[2]), digest))
    if checkpoint.text != text:
        raise ValueError("another spelling")
    return checkpoint


def _key_id(name: str, key: PublicKey) -> bytes:
    """Return the key id of a note's signature: a hint, not a proof (signed-note)."""
    if key.kind == "ed25519":
        return sha256(name.encode("utf-8") + b"\n" + _ED25519 + key.raw).digest()[:_KEY_ID_BYTES]
    return sha256(key.spki).digest()[:_KEY_ID_BYTES]
