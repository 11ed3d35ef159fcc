"""One accepted attempt with keys of both kinds, and commands on them, as a worker has them."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from tests.jobs import ROOT_COMMAND, Job, clean_environment, make_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KINDS: Final = ("ecdsa-p256", "ed25519")


@dataclass(frozen=True, slots=True)
class Signed:
    """A job whose one attempt was accepted, and a key pair of each kind beside it."""

    job: Job

    @property
    def attempt(self) -> str:
        """The id of the accepted attempt."""
        return self.job.attempts[0].name

    def key(self, kind: str) -> Path:
        """Return the private key of a kind."""
        return self.job.directory / "keys" / kind / "key.pem"

    def public_key(self, kind: str) -> Path:
        """Return the public key of a kind."""
        return self.job.directory / "keys" / kind / "key.pub.pem"

    def attest(self, out: Path, kind: str = KINDS[0], *flags: str) -> Path:
        """Attest the attempt and return the file."""
        words = (self.attempt, "--key", str(self.key(kind)), "--out", str(out), *flags)
        done = self.job.command("attest", *words)
        assert done.returncode == 0, done.stderr
        return out

    def verify(
        self, file: Path, *flags: str, kind: str = KINDS[0], **changed: str
    ) -> subprocess.CompletedProcess[str]:
        """Verify an attestation with what the job knows, or with other values by flag name."""
        known = {
            "public_key": str(self.public_key(kind)),
            "diff": str(self.job.diff),
            "prompt": str(self.job.prompt),
            "model": "model-a",
        } | changed
        words = [f"--{name.replace('_', '-')}={value}" for name, value in known.items()]
        return run("verify-attestation", str(file), *words, *flags)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is about no workspace."""
    return subprocess.run(
        [*ROOT_COMMAND, *arguments],
        capture_output=True,
        check=False,
        env=clean_environment(),
        text=True,
        timeout=100,
    )


def make_signed(directory: Path, kinds: Sequence[str] = KINDS[:1]) -> Signed:
    """Run one job to its accept, and make the keys."""
    signed = Signed(make_job(directory))
    done = signed.job.run("--base", str(signed.job.base))
    assert done.returncode == 0, done.stderr
    for kind in kinds:
        done = run("keygen", "--out", str(signed.key(kind).parent), "--type", kind)
        assert done.returncode == 0, done.stderr
    return signed


def statement_of(path: Path) -> dict[str, Any]:
    """Return the statement in an attestation, read by nothing of the project."""
    document = json.loads(path.read_bytes())
    envelope = document.get("dsseEnvelope", document)
    return cast("dict[str, Any]", json.loads(base64.b64decode(envelope["payload"])))
