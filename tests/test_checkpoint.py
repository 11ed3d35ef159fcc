from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from attempt_runner.checkpoint import (
    open_checkpoint,
    require_extension,
    sign_checkpoint,
    take_checkpoint,
)
from attempt_runner.keys import KINDS, Kind, SigningKey, generate_key
from bootstrap.errors import ConfigurationError, LogChainError
from bootstrap.joblog import JobLog, verify_all
from tests.joblogs import GOLDEN, HEAD, LOG, golden_log, log_of
from tests.machine import needs
from tests.signing import make_signed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bootstrap.files import Directory


@pytest.fixture(scope="module", params=KINDS)
def key(request: pytest.FixtureRequest) -> SigningKey:
    """Make a key of each kind."""
    kind: Kind = request.param
    return generate_key(kind)


def _note(directory: Directory, key: SigningKey) -> bytes:
    return sign_checkpoint(take_checkpoint(verify_all(directory)), key)


def _compare(note: bytes, directory: Directory, key: SigningKey) -> int:
    return require_extension(open_checkpoint(note, key.public), verify_all(directory), "log")


def test_a_log_extends_its_checkpoint(tmp_path: Path, key: SigningKey) -> None:
    """It does at once, and after more records."""
    with log_of(tmp_path / "log", 3) as directory:
        note = _note(directory, key)
        assert _compare(note, directory, key) == 3
        JobLog(directory).append("noted")
        assert _compare(note, directory, key) == 4


def test_the_note_has_the_form_of_its_specification(tmp_path: Path, key: SigningKey) -> None:
    """Origin, size, hash, an empty line, and a signature whose id is made as C2SP says."""
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        origin, size, digest, empty, signature, end = _note(directory, key).decode().split("\n")
    lines = (GOLDEN / "good.jsonl").read_bytes().splitlines()
    host, _, first = origin.rpartition("/")
    assert (host, first) == (
        "attempt-runner.example/job-log",
        hashlib.sha256(lines[0]).hexdigest(),
    )
    assert (size, empty, end) == ("5", "", "")
    assert base64.b64decode(digest) == hashlib.sha256(lines[4]).digest()
    dash, name, encoded = signature.split(" ")
    assert (dash, name) == ("\N{EM DASH}", origin)
    spki = key.public.spki
    hashed = spki
    if key.public.kind == "ed25519":
        hashed = origin.encode() + b"\n\x01" + spki[-32:]  # RFC 8410: the key ends its SPKI
    assert base64.b64decode(encoded)[:4] == hashlib.sha256(hashed).digest()[:4]


@needs("openssl")
def test_openssl_verifies_the_note(tmp_path: Path, key: SigningKey) -> None:
    """The signature is over the text alone, its last newline included."""
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        text, _, signature = _note(directory, key).decode().rpartition("\n\n")
    (tmp_path / "text").write_text(f"{text}\n")
    (tmp_path / "sig").write_bytes(base64.b64decode(signature.split(" ")[2])[4:])
    (tmp_path / "key").write_bytes(key.public.pem)
    digest = ("-digest", "sha256") if key.public.kind == "ecdsa-p256" else ()
    verify = ("openssl", "pkeyutl", "-verify", "-pubin", "-rawin", *digest)
    files = ("-inkey", tmp_path / "key", "-in", tmp_path / "text", "-sigfile", tmp_path / "sig")
    subprocess.run([*verify, *files], check=True, capture_output=True)


def test_every_changed_byte_of_a_note_is_refused(tmp_path: Path, key: SigningKey) -> None:
    """Text, name, key id or signature: nothing of it can be another."""
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        note = _note(directory, key)
    for place in range(len(note)):
        with pytest.raises(ConfigurationError):
            open_checkpoint(note[:place] + bytes([note[place] ^ 1]) + note[place + 1 :], key.public)


@pytest.mark.parametrize(
    "edit",
    [
        lambda note: note[:-1],
        lambda note: note + b"\n",
        lambda note: note.rpartition(b"\n\n")[0],
        lambda note: note.rpartition(b"\n\n")[0] + b"\n\n",
        lambda note: note.replace(b"\n5\n", b"\n05\n"),
        lambda note: note.replace(b"\n", b"\r\n"),
        lambda note: b"\xff" + note,
        lambda note: note.replace(b"=\n", b"\n"),
        lambda note: note[:0],
        lambda note: note + note.splitlines(keepends=True)[-1] * 64,
    ],
)
def test_a_malformed_note_is_refused(tmp_path: Path, edit: Callable[[bytes], bytes]) -> None:
    """A note is read in its one form."""
    key = generate_key("ed25519")
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        note = edit(_note(directory, key))
    with pytest.raises(ConfigurationError, match="checkpoint"):
        open_checkpoint(note, key.public)


@pytest.mark.parametrize(
    "text",
    ["o\n0\n{}\n", "o\n05\n{}\n", "o+o\n5\n{}\n", "o\n5\n{}\nmore\n", "o\n5\n\n", "5\n{}\n"],
)
def test_a_signed_text_of_another_form_is_refused(text: str) -> None:
    """A key that signs other notes too does not make them checkpoints."""
    key = generate_key("ed25519")
    note_text = text.format(base64.b64encode(bytes(32)).decode())
    name = note_text.partition("\n")[0]
    hashed = hashlib.sha256(name.encode() + b"\n\x01" + key.public.raw).digest()[:4]
    signature = base64.b64encode(hashed + key.sign(note_text.encode())).decode()
    note = f"{note_text}\n\N{EM DASH} {name} {signature}\n".encode()
    with pytest.raises(ConfigurationError, match="checkpoint"):
        open_checkpoint(note, key.public)


def test_a_signature_has_one_spelling(tmp_path: Path) -> None:
    """The last character of a base64 text has bits that a lax decoder drops."""
    key = generate_key("ed25519")
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        note = _note(directory, key).decode()
    assert note[-2] == "="
    spare = chr(ord(note[-3]) + 1)
    with pytest.raises(ConfigurationError, match="spelling"):
        open_checkpoint(f"{note[:-3]}{spare}{note[-2:]}".encode(), key.public)


def test_signatures_of_others_are_not_looked_at(tmp_path: Path, key: SigningKey) -> None:
    """A witness may have signed the note too, before or after us."""
    witness = "\N{EM DASH} witness.example/w4 " + base64.b64encode(bytes(70)).decode() + "\n"
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        text, _, signature = _note(directory, key).decode().rpartition("\n\n")
        note = f"{text}\n\n{witness}{signature}{witness}".encode()
        assert _compare(note, directory, key) == 5
    with pytest.raises(ConfigurationError):
        open_checkpoint(f"{text}\n\n{witness}".encode(), key.public)
    with pytest.raises(ConfigurationError):
        open_checkpoint(note, generate_key("ed25519").public)


def test_a_cut_tail_shows_with_its_head_file_cut_too(tmp_path: Path, key: SigningKey) -> None:
    """An unkeyed chain that was cut so verifies; whoever kept a checkpoint sees it."""
    with golden_log(tmp_path / "log", "good.jsonl") as directory:
        note = _note(directory, key)
        lines = (GOLDEN / "good.jsonl").read_bytes().splitlines(keepends=True)
        (directory.path / LOG).write_bytes(b"".join(lines[:4]))
        digest = hashlib.sha256(lines[3].rstrip(b"\n")).hexdigest()
        head = json.dumps({"seq": 4, "sha256": digest}, separators=(",", ":"))
        (directory.path / HEAD).write_text(f"{head}\n")
        assert len(list(verify_all(directory))) == 4
        with pytest.raises(LogChainError, match="line 5: expected 5 lines"):
            _compare(note, directory, key)


def test_a_log_written_anew_is_another(tmp_path: Path, key: SigningKey) -> None:
    """From its first line on, or from the middle: both show."""
    with log_of(tmp_path / "old", 3) as directory:
        note = _note(directory, key)
        first = (directory.path / LOG).read_bytes().splitlines(keepends=True)[0]
    with log_of(tmp_path / "other", 3) as other, pytest.raises(LogChainError, match="job-log/"):
        _compare(note, other, key)
    with log_of(tmp_path / "anew") as anew:
        (anew.path / LOG).write_bytes(first)
        for event in ("forged", "noted", "noted"):
            JobLog(anew).append(event)
        with pytest.raises(LogChainError, match="line 3: expected sha256"):
            _compare(note, anew, key)


def test_an_empty_log_has_no_checkpoint(tmp_path: Path) -> None:
    """There is nothing that it could be told by."""
    with log_of(tmp_path / "log") as directory, pytest.raises(ConfigurationError):
        take_checkpoint(verify_all(directory))


def test_the_command_signs_and_compares(tmp_path: Path) -> None:
    """Signed once, kept elsewhere, compared later; each half asks for its own flags."""
    signed = make_signed(tmp_path)
    job, note = signed.job, tmp_path / "note"
    made = job.command("log", "--checkpoint", "--key", str(signed.key("ecdsa-p256")))
    note.write_text(made.stdout)
    public = ("--public-key", str(signed.public_key("ecdsa-p256")))
    same = job.command("log", "--verify", "--checkpoint", str(note), *public)
    assert (same.returncode, same.stdout) == (0, f"verified {len(job.log)} records\n")
    (job.state / LOG).unlink()
    (job.state / HEAD).unlink()
    for path in job.attempts:
        path.rename(tmp_path / path.name)
    lost = job.command("log", "--verify", "--checkpoint", str(note), *public)
    assert lost.returncode == 77
    for flags in (("--checkpoint",), ("--verify", "--checkpoint", str(note)), public):
        assert job.command("log", *flags).returncode == 2
