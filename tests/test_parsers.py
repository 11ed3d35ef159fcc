"""Every parser of ours parses or gives its own error, in bounded time, whatever it reads."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attempt_runner.jobfile import read_job_file
from attempt_runner.resolve import resolve
from attempt_runner.story import read_findings
from bootstrap.bind_receipt import is_identifier
from bootstrap.chain import GENESIS, decode_head, decode_record, encode_record, follow
from bootstrap.errors import (
    ConfigurationError,
    LogChainError,
    RunnerError,
    TamperedStateError,
    UsageError,
)
from bootstrap.files import open_directory
from bootstrap.generation import decode_generation
from bootstrap.identity import read_identity
from bootstrap.scorepath import check_score_path
from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from collections.abc import Callable

ATTEMPT: Final = f"att-20261130T214455Z-{'0' * 32}"
LINE: Final = encode_record(
    GENESIS, "2026-11-30T21:44:55.000000Z", "noted", {"n": 1, "name": "r\u00e9"}
)
TOML: Final = b"""\
[job]
workspace = "workspace"
model = ["model-a"]
prompt = "prompt.md"
diff = "change.diff"
score-path = ["out/score.json"]

[scorer]
scorer-timeout = 12.5
"""
DECISION: Final = {
    "attempt_id": ATTEMPT,
    "cause": "",
    "decision": "reject",
    "decision_version": 1,
    "findings": [{"field": "verdict", "expected": "pass", "found": "fail"}],
}
GENERATION: Final = {
    "generation_version": 1,
    "generation": f"gen-20261130T214455Z-{'0' * 32}",
    "minted_at": "2026-11-30T21:44:55+00:00",
    "status": "in_force",
    "machine_id": None,
    "boot_id": "b",
    "workspace_device": 1,
    "workspace_inode": 2,
    "frozen": {"model_id": "m", "prompt_sha256": "0" * 64, "scorer": None, "config_sha256": None},
}
COMMAND: Final = {"argv": ["/bin/true"], "files": {"/bin/true": "0" * 64}}
IDENTITY: Final = {
    "attempt_version": 1,
    "attempt_id": ATTEMPT,
    "agent": COMMAND,
    "baseline": None,
    "boot_id": "b",
    "diff": {"path": "/w/change.diff", "inside": "change.diff"},
    "exchange": "/tmp/attempt-exchange-0123456789abcdef",  # noqa: S108 - never opened
    "generation": GENERATION["generation"],
    "isolation": {"tier": "none"},
    "marker": "0" * 32,
    "model_id": "m",
    "processes": {"runner": [1, 2]},
    "prompt": {"path": "/p", "inside": None},
    "score_format": "score-json",
    "scored": "diff",
    "scorer": COMMAND,
    "workspace": "/w",
    "workspace_device": 1,
    "workspace_inode": 2,
}


@cache
def place() -> Path:
    """Return a private directory for the files that parsers read."""
    return Path(mkdtemp(prefix="parsers-"))


def by_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a parser of bytes from one that reads a file."""

    def parse(data: bytes) -> object:
        path = place() / name
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return parse


def identity(path: Path) -> object:
    """Read an attempt.json."""
    with open_directory(path.parent) as directory:
        return read_identity(directory, ATTEMPT)


def findings(path: Path) -> object:
    """Read a decision.json."""
    with open_directory(path.parent) as directory:
        return read_findings(directory)


def job_file(path: Path) -> object:
    """Read a job.toml and place its values."""
    file = read_job_file(path, None)
    return resolve({}, file.values, cwd=place(), config_path=path, config_sha256=file.sha256)


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser of bytes, a good input, and the only errors it may raise."""

    good: bytes
    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


PARSERS: Final = {
    "line": Parser(LINE, lambda data: decode_record(data, "it"), (LogChainError,)),
    "next-line": Parser(LINE, lambda data: follow(GENESIS, data, "it"), (LogChainError,)),
    "head": Parser(
        b'{"seq":1,"sha256":"%s"}\n' % (b"0" * 64),
        lambda data: decode_head(data, "it"),
        (LogChainError,),
    ),
    "generation": Parser(_json(GENERATION), decode_generation, (ValueError, TypeError)),
    "attempt": Parser(_json(IDENTITY), by_file("attempt.json", identity), (TamperedStateError,)),
    "decision": Parser(_json(DECISION), by_file("decision.json", findings), (TamperedStateError,)),
    "job": Parser(TOML, by_file("job.toml", job_file), (ConfigurationError, UsageError)),
}
every_parser = pytest.mark.parametrize("name", PARSERS)


def judge(name: str, data: bytes) -> bool:
    """Tell whether a parser takes some bytes; an error that is not its own is raised."""
    parser = PARSERS[name]
    try:
        parser.parse(data)
    except parser.errors as error:
        require_printable(error)
        return False
    return True


def require_printable(error: Exception) -> None:
    """Check that an error of ours is one line of printable ASCII."""
    assert not isinstance(error, RunnerError) or re.fullmatch("[ -~]+", str(error))


@every_parser
def test_the_good_input_is_parsed(name: str) -> None:
    """What the sweeps begin with is good."""
    assert judge(name, PARSERS[name].good)


@every_parser
def test_each_byte_flipped_cut_or_doubled(name: str) -> None:
    """One flipped bit or byte, one byte less or more: parsed, or its own error."""
    good = PARSERS[name].good
    taken = 0
    for at in range(0, len(good), 1 if len(good) < 400 else 3):
        for flip in (0x01, 0x20, 0x80, good[at] or 0xFF):
            taken += judge(name, good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
        judge(name, good[:at])
        judge(name, good[:at] + good[at : at + 1] + good[at:])
        judge(name, good[:at] + good[at + 1 :])
    assert taken < 4 * len(good)


HOSTILE: Final = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b"{} {}",
    b"\x00" * 100,
    b'{"a":NaN}',
    b'{"a":1e999}',
    b'{"a":' + b"9" * 5000 + b"}",
    b"a = " + b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"a = " + b"[" * 100_000,
    b"a" + b".a" * 1000 + b" = 1",
    b'"\\ud800"',
    b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}",
    b"\n".join(b"k%d = 1" % number for number in range(20_000)),
)


@every_parser
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_breaks_parsers_is_refused(name: str, number: int) -> None:
    """Depth, digits, keys, encodings and emptiness end in one line and no traceback."""
    assert not judge(name, HOSTILE[number]) or (name == "job" and not HOSTILE[number])


@pytest.mark.parametrize("name", ["attempt", "decision", "job"])
def test_a_gigabyte_is_refused_by_its_size(name: str) -> None:
    """A file of 1 GiB of zeros is read no further than its limit."""
    file = {"attempt": "attempt.json", "decision": "decision.json", "job": "job.toml"}[name]
    path = place() / file
    with path.open("wb") as sparse:
        sparse.truncate(1 << 30)
    read = {"attempt": identity, "decision": findings, "job": job_file}[name]
    with pytest.raises(PARSERS[name].errors):
        read(path)


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document))
    found = [path] if path else []
    for key, value in items:
        found += leaves(value, (*path, key))
    return found


VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("line", json.loads(LINE)),
        ("next-line", json.loads(LINE)),
        ("head", {"seq": 1, "sha256": "0" * 64}),
        ("generation", GENERATION),
        ("attempt", IDENTITY),
        ("decision", DECISION),
    ],
)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_in_any_place(name: str, document: Any, data: st.DataObject) -> None:
    """A value of another type or range in any place: parsed, or its own error."""
    changed = json.loads(json.dumps(document))
    *above, last = data.draw(st.sampled_from(leaves(document)))
    place_of = changed
    for key in above:
        place_of = place_of[key]
    place_of[last] = data.draw(VALUES)
    judge(name, json.dumps(changed, separators=(",", ":")).encode())


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_bytes(data: bytes) -> None:
    """No bytes break any parser."""
    for name in PARSERS:
        judge(name, data)


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_as_a_score_path(text: str) -> None:
    """What is taken is relative, beneath the workspace and has one spelling; the rest is 78."""
    try:
        path = check_score_path(text)
    except ConfigurationError as error:
        require_printable(error)
        return
    parts = path.split(b"/")
    assert parts
    assert not {b"", b".", b".."} & set(parts)
    assert path.find(b"\0") < 0
    assert check_score_path(path.decode("utf-8", "surrogateescape")) == path


@given(st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_text_as_an_identifier(text: str) -> None:
    """A model id, generation or attempt id is visible ASCII and never begins with a dash."""
    assert is_identifier(text) is bool(re.fullmatch(r"[!-,.-~][!-~]{0,255}", text))


@pytest.mark.parametrize("file", ["attempt.json", "receipt.json", "decision.json"])
def test_a_gate_over_flipped_files_refuses_or_means_the_same(tmp_path: Path, file: str) -> None:
    """Each byte of an attempt's file flipped: a decision, or an error of ours."""
    job = make_job(tmp_path)
    assert job.run().stdout == "accept\n"
    path = job.state / "attempts" / job.last / file
    good = path.read_bytes()
    path.chmod(0o600)
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x02]) + good[at + 1 :])
        says = job.judged(job.last)
        assert says != "accept" or file != "receipt.json"
    path.write_bytes(good)
    assert job.judged(job.last) == "accept"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("exchange", "%00"),
        ("exchange", ""),
        ("exchange", "/"),
        ("exchange", "a" * 10_000),
        ("processes", {"runner": [10**30, 1], "agent": [-1, -1]}),
        ("processes", {"agent": [1, 0]}),
        ("marker", ""),
        ("marker", "a\0b"),
        ("boot_id", ""),
    ],
)
def test_a_run_after_a_forged_identity_harms_nothing(job: Job, key: str, value: object) -> None:
    """What an open attempt's file names is not trusted: accepted as ever, or held; never a bug."""
    words = job.run_words()
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 6, *words) == -9
    path = job.state / "attempts" / job.last / "attempt.json"
    document = json.loads(path.read_bytes())
    assert key in document
    path.write_text(json.dumps({**document, key: value}))
    bystander = job.directory / "attempt-exchange-bystander"
    bystander.mkdir()
    done = job.run()
    assert (done.returncode, done.stdout) in ((0, "accept\n"), (77, "")), done
    assert bystander.exists()
