"""The hash chain of the job log: bytes to records and back. Opens nothing, writes nothing.

One line of the log is one JSON object in one spelling: ASCII, no spaces, the keys `seq`,
`prev`, `time`, `event` first and in this order. `seq` counts from 1; `prev` is the sha256 of
the previous line's bytes without its newline, 64 zeros in the first. The chain is not keyed:
who can write the state directory can write a whole new chain. It shows what changed a part.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.bind_receipt import StrictJsonError, load_json
from bootstrap.errors import LogChainError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_NAME: Final = "job-log.jsonl"
HEAD_NAME: Final = "job-log.head"
LINE_LIMIT: Final = 1024 * 1024  # bytes of one line: what a reader of the tail holds in memory
HEAD_LIMIT: Final = 256  # bytes of the head file: a number and a digest
REMEDY: Final = (
    "hold the machine and keep the log; once it is understood, "
    "`attempt-runner log --seal-broken` starts a new one"
)

_LEADING_KEYS: Final = ["seq", "prev", "time", "event"]
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decode: Final = json.JSONDecoder().raw_decode


class Head(NamedTuple):
    """Where a chain ends: number and sha256 of its last line."""

    seq: int
    sha256: str


GENESIS: Final = Head(0, "0" * 64)  # the end of an empty chain


class Record(NamedTuple):
    """One line of the log. `sha256` is the digest of the line it was read from or written to."""

    seq: int
    prev: str
    time: str
    event: str
    fields: Mapping[str, object]
    sha256: str

    @property
    def head(self) -> Head:
        """The end of the chain whose last record this is."""
        return Head(self.seq, self.sha256)


def encode_record(head: Head, time: str, event: str, fields: Mapping[str, object]) -> bytes:
    """Return the line, without its newline, that follows `head`.

    A lone surrogate (a byte of a file name that is not UTF-8) is written as the six characters
    of its escape, since strict readers refuse it. Raises ValueError for a field named like one
    of the chain's own, for a value that strict JSON has not, or for more than LINE_LIMIT bytes.
    """
    if not event or not fields.keys().isdisjoint(_LEADING_KEYS):
        raise ValueError(f"log record {event!r}: expected an event name and fields of its own")
    own = {"seq": head.seq + 1, "prev": head.sha256, "time": time, "event": event}
    line = _encode(_writable(own | dict(fields))).encode("ascii")
    if len(line) >= LINE_LIMIT:
        raise ValueError(f"log record {event!r}: expected under {LINE_LIMIT} bytes")
    load_json(line)  # deeper, or longer a number, than readers take would break the log
    return line


def _writable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_writable(key): _writable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(item) for item in value]
    return value


def decode_record(line: bytes, where: str) -> Record:
    """Parse one line strictly, whatever chain it belongs to. Raises LogChainError.

    Only the spelling that `encode_record` writes is taken: the same record re-indented, with
    keys in another order or twice, or numbers written otherwise, is refused.
    """
    try:
        value = load_json(line)
    except StrictJsonError as error:
        raise chain_error(where, "one JSON object", str(error)) from error
    if not isinstance(value, dict) or list(value)[:4] != _LEADING_KEYS:
        raise chain_error(where, "an object that begins with seq, prev, time, event", "another")
    if _encode(value).encode("ascii") != line:
        raise chain_error(where, "the compact spelling the runner writes", "another spelling")
    seq, prev, time, event, *_ = value.values()
    if type(seq) is not int or not type(time) is type(event) is str:
        raise chain_error(where, "a number and two texts as seq, time and event", "other types")
    fields = {key: item for key, item in value.items() if key not in _LEADING_KEYS}
    return Record(seq, prev, time, event, fields, sha256(line).hexdigest())


def follow(last: Head | Record, line: bytes, path: str) -> Record:
    """Return the record of the line after `last`, or raise LogChainError naming what is wrong.

    1. The line is one JSON object. 2. It continues the numbering. 3. It names the digest of
    the line before.

    The common case is decided by comparing bytes, and the strict parser only finds the words
    for a refusal: a log of a million lines is read at the speed of the JSON parser. A field
    given twice passes here where the chain holds: the digests cover it.
    """
    number = last.seq + 1
    start = b'{"seq":%d,"prev":"%s","time":"' % (number, last.sha256.encode("ascii"))
    try:
        value, end = _decode(str(line, "ascii"))
        if line.startswith(start) and end == len(line):
            seq, prev = value.pop("seq"), value.pop("prev")
            time, event = value.pop("time"), value.pop("event")
            if seq == number and prev == last.sha256 and type(time) is type(event) is str:
                return Record(seq, prev, time, event, value, sha256(line).hexdigest())
    except (ValueError, KeyError, RecursionError):
        pass
    raise _why_not(last, line, path)


def _why_not(last: Head | Record, line: bytes, path: str) -> LogChainError:
    where = f"{path} line {last.seq + 1}"
    try:
        record = decode_record(line, where)
    except LogChainError as error:
        return error
    if record.seq != last.seq + 1:
        return chain_error(where, f"seq {last.seq + 1}", f"seq {record.seq}")
    expected = f"prev {last.sha256}, the sha256 of line {last.seq}"
    return chain_error(where, expected, f"prev {record.prev}")


def encode_head(head: Head) -> bytes:
    """Return the bytes of the head file."""
    return _encode(head._asdict()).encode("ascii") + b"\n"


def decode_head(data: bytes, where: str) -> Head:
    """Parse the head file. Raises LogChainError for any other spelling."""
    try:
        value = load_json(data)
    except StrictJsonError as error:
        raise chain_error(where, "one JSON object", str(error)) from error
    seq, digest = (value.get("seq"), value.get("sha256")) if isinstance(value, dict) else (0, "")
    if type(seq) is int and seq > 0 and isinstance(digest, str) and _DIGEST.fullmatch(digest):
        head = Head(seq, digest)
        if encode_head(head) == data:
            return head
    raise chain_error(where, "the number and sha256 of the last line", "something else")


def chain_error(what: str, expected: str, found: str, remedy: str = REMEDY) -> LogChainError:
    """Return the error of a log that is not the chain that was written."""
    return LogChainError(what, expected=expected, found=found, remedy=remedy)
