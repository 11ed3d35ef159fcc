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
from contextlib import contextmanager, suppress

# Importing typing, dataclasses or argparse costs a verify 0.3 to 1.0 times a bare interpreter
# start. A type checker takes this name for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from io import FileIO
    from typing import Final, TextIO

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


class Identity:
    """What a receipt must be bound to; digests are lower-case hex sha256.

    `attempt_id` None means that the caller knows no attempt: the receipt's own is then not
    judged.
    """

    __slots__ = ("attempt_id", "diff_sha256", "model_id", "prompt_sha256", "workspace_generation")

    def __init__(
        self,
        diff_sha256: str,
        prompt_sha256: str,
        model_id: str,
        workspace_generation: str,
        attempt_id: str | None,
    ) -> None:
        self.diff_sha256 = diff_sha256
        self.prompt_sha256 = prompt_sha256
        self.model_id = model_id
        self.workspace_generation = workspace_generation
        self.attempt_id = attempt_id


class Receipt:
    """The fields of a receipt of a known shape. Nothing here is trusted before `judge`.

    A value of the wrong type stands as an empty one, which nothing is ever equal to.
    """

    __slots__ = (
        "attempt_id",
        "diff_sha256",
        "evidence",
        "model_id",
        "prompt_sha256",
        "reasons",
        "verdict",
        "workspace_generation",
    )

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.diff_sha256 = _text(fields["diff_sha256"])
        self.prompt_sha256 = _text(fields["prompt_sha256"])
        self.model_id = _text(fields["model_id"])
        self.workspace_generation = _text(fields["workspace_generation"])
        self.attempt_id = _text(fields["attempt_id"]) if "attempt_id" in fields else None
        self.verdict = _text(fields["verdict"])
        self.reasons = _texts(fields["reasons"])
        evidence = fields.get("evidence")
        self.evidence: dict[str, object] | None = evidence if isinstance(evidence, dict) else None


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
    return Receipt(fields)


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
    differing = _differing(receipt, identity)
    if differing:
        raise RejectedError(differing)


def _differing(receipt: Receipt, identity: Identity) -> list[str]:
    holds = (
        ("diff_sha256", _matches(receipt.diff_sha256, identity.diff_sha256, _is_digest)),
        ("prompt_sha256", _matches(receipt.prompt_sha256, identity.prompt_sha256, _is_digest)),
        ("model_id", _matches(receipt.model_id, identity.model_id, is_identifier)),
        (
            "workspace_generation",
            _matches(receipt.workspace_generation, identity.workspace_generation, is_identifier),
        ),
        (
            "attempt_id",
            identity.attempt_id is None
            or _matches(receipt.attempt_id, identity.attempt_id, is_identifier),
        ),
        ("verdict", receipt.verdict == "pass"),
        ("reasons", _are_reasons(receipt.reasons)),
    )
    return [name for name, held in holds if not held]


def _matches(found: object, expected: object, well_formed: Callable[[object], bool]) -> bool:
    return well_formed(expected) and found == expected


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
    fields: dict[str, object] = {
        "diff_sha256": identity.diff_sha256,
        "prompt_sha256": identity.prompt_sha256,
        "model_id": identity.model_id,
        "workspace_generation": identity.workspace_generation,
        "verdict": verdict,
        "reasons": list(reasons),
    }
    if identity.attempt_id is not None:
        fields["attempt_id"] = identity.attempt_id
    if evidence is not None:
        fields["evidence"] = evidence
    try:
        text = json.dumps(fields, indent=2, sort_keys=True, allow_nan=False)
        data = text.encode("ascii") + b"\n"
        differing = _differing(parse_receipt(data), identity)
    except RejectedError as error:
        differing = list(error.fields)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal("receipt", "values that JSON can hold", error) from error
    for name in differing:
        if name != "verdict":  # a fail is bound like a pass, and judged when it is verified
            raise _refusal(name, _RULES[name], fields.get(name, "other data"))
    return data


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


@contextmanager
def _open_regular(path: str | os.PathLike[str], *, follow_links: bool) -> Iterator[FileIO]:
    flags = _READ_FLAGS if follow_links else _READ_FLAGS | os.O_NOFOLLOW
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("a file that is not regular")
        yield file


def _read_capped(file: FileIO) -> bytes:
    data = bytearray()
    while chunk := file.read(MAX_RECEIPT_BYTES + 1 - len(data)):
        data += chunk
    if len(data) > MAX_RECEIPT_BYTES:
        raise ValueError(f"more than {MAX_RECEIPT_BYTES} bytes")
    return bytes(data)


def _read_receipt(path: str) -> bytes:
    try:
        with _open_regular(path, follow_links=False) as file:
            if os.fstat(file.fileno()).st_nlink != 1:
                raise RejectedError(["receipt_file"])
            return _read_capped(file)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RejectedError(["missing_receipt"]) from error
    except (OSError, ValueError) as error:
        raise RejectedError(["receipt_file"]) from error


def _read_reasons(path: str) -> list[str]:
    try:
        with _open_regular(path, follow_links=True) as file:
            reasons = load_json(_read_capped(file))
    except (OSError, ValueError) as error:
        raise _refusal(f"--reasons-file {_shown(path)}", "a JSON array", _cause(error)) from error
    if not isinstance(reasons, list):
        raise _refusal(f"--reasons-file {_shown(path)}", "a JSON array", type(reasons).__name__)
    return reasons


def _digest_input(flag: str, path: str, *, follow_links: bool) -> str:
    try:
        return digest_file(path, follow_links=follow_links)
    except (OSError, ValueError) as error:
        what = f"{flag} {_shown(path)}"
        raise _refusal(what, "a regular file that is not empty", _cause(error)) from error


def _cause(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) else error


def _require_replaceable(out: str, inputs: Iterable[str]) -> None:
    """Refuse an `--out` that a rename would damage: a device, a link, one of the inputs."""
    what, expected = f"--out {_shown(out)}", "a new file or a regular one that is no input"
    try:
        status = os.lstat(out)
    except FileNotFoundError:
        if os.path.basename(out) and os.path.isdir(os.path.dirname(out) or os.curdir):
            return
        raise _refusal(what, expected, "no such directory") from None
    except OSError as error:
        raise _refusal(what, expected, _cause(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(what, expected, f"file type {stat.filemode(status.st_mode)[0]}")
    if any(os.path.samestat(status, os.stat(path)) for path in inputs):
        raise _refusal(what, expected, "an input")


def _store(path: str, data: bytes) -> None:
    """Put `data` at `path` atomically and durably. Raises OSError; the old file then stands."""
    directory, name = os.path.split(path)
    parent = os.open(directory or os.curdir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = f".bind-receipt-{os.urandom(16).hex()}"
    try:
        _write_new(parent, temporary, data)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        os.close(parent)


def _write_new(parent: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o644, dir_fd=parent), "wb", buffering=0) as file:
        _write_all(file.fileno(), data)
        os.fsync(file.fileno())


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


# Commands


def _identity(flags: Mapping[str, str], *, diff_sha256: str, prompt_sha256: str) -> Identity:
    return Identity(
        diff_sha256,
        prompt_sha256,
        flags["--model"],
        flags["--workspace-gen"],
        flags.get("--attempt-id"),
    )


def _write(flags: Mapping[str, str]) -> int:
    identity = _identity(
        flags,
        diff_sha256=_digest_input("--diff", flags["--diff"], follow_links=False),
        prompt_sha256=_digest_input("--prompt", flags["--prompt"], follow_links=True),
    )
    data = build_receipt(identity, flags["--verdict"], _read_reasons(flags["--reasons-file"]))
    inputs = (flags["--diff"], flags["--prompt"], flags["--reasons-file"])
    _require_replaceable(flags["--out"], inputs)
    _store(flags["--out"], data)
    return 0


def _verify(flags: Mapping[str, str]) -> int:
    line = _verdict(flags)
    written = _put(sys.stdout, line)
    if not written:
        _put(sys.stderr, f"{PROGRAM}: standard output: expected to take the verdict, got an error")
    return 0 if written and line == "accept" else 1


def _verdict(flags: Mapping[str, str]) -> str:
    try:
        _check(flags)
    except RejectedError as error:
        return str(error)
    return "accept"


def _check(flags: Mapping[str, str]) -> None:
    """Return if the receipt file is a pass bound to the files and names of the flags.

    Checked in this order: 1 the receipt file, 2 its shape, 3 that the files can be hashed,
    4 every bound value. Raises RejectedError, and nothing else for whatever the files hold.
    """
    receipt = parse_receipt(_read_receipt(flags["--receipt"]))  # 1, 2
    digests = {  # 3
        "diff_sha256": _digest_or_empty(flags["--diff"], follow_links=False),
        "prompt_sha256": _digest_or_empty(flags["--prompt"], follow_links=True),
    }
    try:
        judge(receipt, _identity(flags, **digests))  # 4
    except RejectedError as error:
        raise RejectedError(
            # A file that cannot be hashed differs from every digest: it is named instead.
            name.replace("_sha256", "_file") if digests.get(name) == "" else name
            for name in error.fields
        ) from error


def _digest_or_empty(path: str, *, follow_links: bool) -> str:
    try:
        return digest_file(path, follow_links=follow_links)
    except (OSError, ValueError):
        return ""


def _selftest(_: Mapping[str, str]) -> int:
    import tempfile  # noqa: PLC0415 - heavy, and no other command needs it

    try:
        with tempfile.TemporaryDirectory(prefix=f"{PROGRAM}-") as directory:
            faults = _faults(directory)
    except (OSError, ReceiptInputError) as error:
        faults = [f"expected a place to plant receipts, got {_shown(error)}"]
    line = f"selftest failed: {'; '.join(faults)}" if faults else "selftest ok"
    return 0 if _put(sys.stdout, line) and not faults else 1


def _faults(directory: str) -> list[str]:
    """Plant receipts that must not pass beside one that must; tell what was judged otherwise."""

    def plant(name: str, data: bytes) -> str:
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    job = {
        "--diff": plant("patch.diff", b"-1\n+2\n"),
        "--prompt": plant("prompt", b"Fix the bug.\n"),
        "--model": "model-a",
        "--workspace-gen": "generation-1",
        "--attempt-id": "attempt-1",
    }
    receipt = os.path.join(directory, "receipt.json")
    reasons = plant("reasons.json", b'["reads well"]')
    _write({**job, "--verdict": "pass", "--reasons-file": reasons, "--out": receipt})
    failing = os.path.join(directory, "failing.json")
    _write({**job, "--verdict": "fail", "--reasons-file": reasons, "--out": failing})
    cases: tuple[tuple[str, dict[str, str], str], ...] = (
        ("fresh", {}, "accept"),
        ("foreign model", {"--model": "model-b"}, "reject: model_id"),
        ("stale generation", {"--workspace-gen": "generation-2"}, "reject: workspace_generation"),
        ("stale attempt", {"--attempt-id": "attempt-2"}, "reject: attempt_id"),
        ("drifted diff", {"--diff": plant("new.diff", b"-1\n+3\n")}, "reject: diff_sha256"),
        ("drifted prompt", {"--prompt": plant("new", b"Fix the bug!\n")}, "reject: prompt_sha256"),
        ("fail verdict", {"--receipt": failing}, "reject: verdict"),
        ("planted receipt", {"--receipt": plant("planted", b"{}")}, "reject: receipt_keys"),
        ("no receipt", {"--receipt": receipt + ".gone"}, "reject: missing_receipt"),
    )
    judged = [
        (case, expected, _verdict({**job, "--receipt": receipt, **change}))
        for case, change, expected in cases
    ]
    return [f"{case}: expected {want}, got {got}" for case, want, got in judged if want != got]


# Command line


class Command:
    """One command: what runs it, the flags it must and may have, and its whole help."""

    __slots__ = ("help", "optional", "required", "run")

    def __init__(
        self,
        run: Callable[[Mapping[str, str]], int],
        required: tuple[str, ...],
        optional: tuple[str, ...],
        text: str,
    ) -> None:
        self.run = run
        self.required = required
        self.optional = optional
        self.help = text


PROGRAM: Final = "bind-receipt"
_HELP_FLAGS: Final = ("-h", "--help")
_JOB_FLAGS: Final = ("--diff", "--prompt", "--model", "--workspace-gen")
_HELP: Final = """\
usage: bind-receipt COMMAND [--help]

Bind an evaluation receipt to the one attempt it judged: model, diff, prompt and workspace
generation. A receipt of another attempt is rejected, by name of what differs.

commands:
  write      make a receipt
  verify     print `accept` (exit 0) or `reject: FIELD,...` (exit 1)
  selftest   plant receipts that must be rejected, and see that they are

`verify` proves binding, not origin: whoever can write the receipt can write a matching one."""
_JOB_HELP: Final = """\
  --diff FILE           the change: a regular file, not empty, no link
  --prompt FILE         the prompt: a regular file, not empty; a link to one will do
  --model ID            the model that made the change
  --workspace-gen ID    the workspace generation it was made in
  --attempt-id ID       the attempt, where there is one{attempt}
"""
_VERIFY_HELP: Final = f"""\
usage: bind-receipt verify --diff FILE --prompt FILE --model ID --workspace-gen ID
                           --receipt FILE [--attempt-id ID]

Verify that a receipt is a pass for exactly this attempt. Every value is recomputed or
compared byte for byte; a missing one rejects.

{_JOB_HELP.format(attempt="; a receipt without one then rejects")}\
  --receipt FILE        the receipt: a regular file with one link, at most 1 MiB

An ID is 1 to 256 visible ASCII characters, no space, not beginning with `-`.

Prints one line. Exit status: 0 `accept`; 1 `reject: FIELD,...`, or the line could not be
written; 2 bad usage, with one line on standard error and nothing on standard output.

  bind-receipt verify --diff patch.diff --prompt prompt.md --model model-a \\
      --workspace-gen "$WORKSPACE_GEN" --receipt receipt.json"""
_WRITE_HELP: Final = f"""\
usage: bind-receipt write --diff FILE --prompt FILE --model ID --workspace-gen ID
                          --verdict pass|fail --reasons-file FILE --out FILE
                          [--attempt-id ID]

Make a receipt. The file appears whole and is on disk when the command returns, or it does
not appear.

{_JOB_HELP.format(attempt="")}\
  --verdict pass|fail   what the scorer found
  --reasons-file FILE   why: a JSON array of 1 to 1000 strings, none blank
  --out FILE            where the receipt goes; an older one is replaced

An ID is 1 to 256 visible ASCII characters, no space, not beginning with `-`.

Prints nothing. Exit status: 0 written; 2 bad input, with one line on standard error and
nothing written; 77 the filesystem failed.

  echo '["all tests pass"]' > reasons.json
  bind-receipt write --diff patch.diff --prompt prompt.md --model model-a \\
      --workspace-gen "$WORKSPACE_GEN" --verdict pass --reasons-file reasons.json \\
      --out receipt.json"""
_SELFTEST_HELP: Final = """\
usage: bind-receipt selftest

Plant foreign, stale and drifted receipts in a temporary directory (TMPDIR) and see that each
is rejected for its own reason, and that a fresh one is accepted.

Prints `selftest ok` (exit 0), or what was judged otherwise (exit 1)."""
_COMMANDS: Final = {
    "write": Command(
        _write,
        (*_JOB_FLAGS, "--verdict", "--reasons-file", "--out"),
        ("--attempt-id",),
        _WRITE_HELP,
    ),
    "verify": Command(_verify, (*_JOB_FLAGS, "--receipt"), ("--attempt-id",), _VERIFY_HELP),
    "selftest": Command(_selftest, (), (), _SELFTEST_HELP),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; `--help` tells what each means."""
    try:
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except ReceiptInputError as error:
        _put(sys.stderr, f"{PROGRAM}: {error}; see --help")
        return 2
    except OSError as error:
        _put(sys.stderr, f"{PROGRAM}: expected the write to succeed, got {_shown(error)}")
        return 77
    except KeyboardInterrupt:
        return 130


def _dispatch(words: Sequence[str]) -> int:
    name = words[0] if words else ""
    if name in _HELP_FLAGS:
        return 0 if _put(sys.stdout, _HELP) else 1
    command = _COMMANDS.get(name)
    if command is None:
        raise _refusal("command", ", ".join(_COMMANDS), name)
    flags = _parse_flags(words[1:], command)
    if flags is None:
        return 0 if _put(sys.stdout, command.help) else 1
    return command.run(flags)


def _parse_flags(words: Iterable[str], command: Command) -> dict[str, str] | None:
    """Return each flag's value, or None where help is asked for.

    Stricter than argparse, and a third of the whole start faster: no abbreviation, no flag
    twice, no empty value. Help counts only where a flag may stand: a value `--help` must not
    turn a verification into exit 0.
    """
    known = command.required + command.optional
    flags: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in _HELP_FLAGS:
            return None
        flag, equals, value = word.partition("=")
        if flag in flags or flag not in known:
            raise _refusal("arguments", f"{', '.join(known) or 'none'}, each once", word)
        flags[flag] = value if equals else next(rest, "")
        _require_value(flag, flags[flag])
    missing = [flag for flag in command.required if flag not in flags]
    if missing:
        raise _refusal("arguments", ", ".join(command.required), f"no {', '.join(missing)}")
    return flags


def _require_value(flag: str, value: str) -> None:
    if not value:
        raise _refusal(flag, "a value", value)
    if flag in ("--model", "--workspace-gen", "--attempt-id") and not is_identifier(value):
        raise _refusal(flag, _ID_RULE, value)
    if flag == "--verdict" and value not in VERDICTS:
        raise _refusal(flag, "pass or fail", value)


def _put(stream: TextIO | None, text: str) -> bool:
    """Write a line past the stream's buffer, and tell whether all of it left.

    Buffered, a full disk or a reader that left would show only after the exit status is
    decided. A stream that was closed at the start is None.
    """
    if stream is None:
        return False
    try:
        _write_all(stream.fileno(), f"{text}\n".encode("ascii"))
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
