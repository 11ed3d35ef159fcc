from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from tests.machine import needs
from tests.signing import KINDS, Signed, make_signed

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT: Final = Path(__file__).parent / "sigstore.cjs"
# Every byte of a signature is changed, and every so many of the payload; starting openssl is slow.
STEP: Final = {"ed25519": 1, "ecdsa-p256": 8}
OPENSSL_STEP: Final = 200


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """One accepted attempt with a key of each kind."""
    return make_signed(tmp_path_factory.mktemp("signed"), KINDS)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Run with a key of each kind."""
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(signed: Signed, kind: str) -> Path:
    """Attest as a bundle: it holds the envelope that a bare file would be."""
    return signed.attest(signed.job.directory / f"{kind}.json", kind, "--bundle")


@pytest.fixture(scope="module")
def sigstore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install npm's verifier; where no registry answers, say so and skip."""
    directory = tmp_path_factory.mktemp("npm")
    shutil.copy(SCRIPT, directory)
    (directory / "package.json").write_text('{"private": true}')
    packages = ("@sigstore/bundle@4", "@sigstore/verify@3")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    try:
        done = subprocess.run(
            ["npm", "install", *options, "--cache", str(directory / "cache"), *packages],
            cwd=directory,
            capture_output=True,
            check=False,
            timeout=100,
        )
    except (OSError, subprocess.TimeoutExpired):
        pytest.skip("machine lacks: npm and a registry that answers")
    if done.returncode != 0:
        pytest.skip("machine lacks: an npm registry that answers")
    return directory / SCRIPT.name


def test_securesystemslib_verifies_and_refuses_every_change(
    signed: Signed, bundle: Path, kind: str
) -> None:
    """The signing library's own envelope takes the file, and none of its changes."""
    key = SSlibKey.from_crypto(load_pem_public_key(signed.public_key(kind).read_bytes()))
    document = json.loads(bundle.read_bytes())["dsseEnvelope"]
    assert _envelope(document).verify([key], 1) == {key.keyid: key}
    for changed in _changes(document, STEP[kind]):
        with pytest.raises(VerificationError):
            _envelope(changed).verify([key], 1)


@needs("openssl")
def test_openssl_verifies_and_refuses_changes(
    signed: Signed, bundle: Path, kind: str, tmp_path: Path
) -> None:
    """The signature is over the PAE of the payload: openssl needs nothing else to see it."""
    document = json.loads(bundle.read_bytes())["dsseEnvelope"]
    key = signed.public_key(kind)
    assert _openssl(document, key, kind, tmp_path)
    for changed in _changes(document, OPENSSL_STEP):
        assert not _openssl(changed, key, kind, tmp_path)


def test_npm_verifies_the_bundle_and_refuses_every_change(
    signed: Signed, bundle: Path, kind: str, sigstore: Path
) -> None:
    """What checks npm's provenance takes the bundle by its key hint, and none of its changes."""
    done = subprocess.run(
        ["node", str(sigstore), str(bundle), str(signed.public_key(kind)), str(STEP[kind])],
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("accepted, ")


def _envelope(document: dict[str, Any]) -> Envelope:
    (signature,) = document["signatures"]
    return Envelope.from_dict(document | {"signatures": [dict(signature)]})  # it writes into them


def _openssl(document: dict[str, Any], key: Path, kind: str, directory: Path) -> bool:
    payload = base64.b64decode(document["payload"])
    media_type = document["payloadType"].encode()
    pae = b"DSSEv1 %d %s %d %s" % (len(media_type), media_type, len(payload), payload)
    (directory / "pae").write_bytes(pae)
    (directory / "sig").write_bytes(base64.b64decode(document["signatures"][0]["sig"]))
    digest = ("-digest", "sha256") if kind == "ecdsa-p256" else ()
    verify = ("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(key), "-rawin", *digest)
    files = ("-in", str(directory / "pae"), "-sigfile", str(directory / "sig"))
    return subprocess.run([*verify, *files], capture_output=True, check=False).returncode == 0


def _changes(document: dict[str, Any], step: int) -> Iterator[dict[str, Any]]:
    """Yield the envelope with one byte of payload or signature changed, place by place."""
    payload = base64.b64decode(document["payload"])
    for place in range(0, len(payload), step):
        yield document | {"payload": _changed(payload, place)}
    (signature,) = document["signatures"]
    raw = base64.b64decode(signature["sig"])
    for place in range(len(raw)):
        yield document | {"signatures": [signature | {"sig": _changed(raw, place)}]}


def _changed(good: bytes, place: int) -> str:
    changed = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
    return base64.b64encode(changed).decode()
