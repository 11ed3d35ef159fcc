"""Attestations to test with: the golden ones, and what a gate's host would know of them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.attest import Expected
from attempt_runner.keys import PublicKey, parse_public_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.attest import AgeLimit

GOLDEN: Final = Path(__file__).parent / "golden" / "attestations"
DIFF: Final = GOLDEN / "patch.diff"
PROMPT: Final = GOLDEN / "prompt.md"
MODEL: Final = "m-1"
GENERATION: Final = "gen-20261130T214455Z-" + "0" * 31 + "1"
ATTEMPT: Final = "att-20261130T214457Z-" + "0" * 31 + "2"


def golden_key(name: str) -> PublicKey:
    """Return the public key of golden files: `ecdsa-p256` or `ed25519`."""
    path = GOLDEN / f"{name}.pub.pem"
    return parse_public_key(path.read_bytes(), str(path))


def expectations(
    claims: Mapping[str, str] | None = None,
    *,
    diff: Path = DIFF,
    requirements: Mapping[str, str | None] | None = None,
    age: AgeLimit | None = None,
) -> Expected:
    """Return what a caller expects who knows the golden attempt, with changes."""
    known = {"model_id": MODEL, "workspace_generation": GENERATION, "attempt_id": ATTEMPT}
    return Expected(
        diff=sha256(diff.read_bytes()).hexdigest(),
        prompt=sha256(PROMPT.read_bytes()).hexdigest(),
        claims=known | dict(claims or {}),
        requirements=requirements or {},
        age=age,
    )
