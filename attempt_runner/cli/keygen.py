"""`keygen`: a key pair to sign attestations and checkpoints with."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attempt_runner.cli.output import write_result
from attempt_runner.keyfiles import PRIVATE_NAME, PUBLIC_NAME, write_pair
from bootstrap.errors import shown
from bootstrap.reaper import guard_runner


class Type(StrEnum):
    """The kinds of key, as `keys.KINDS` has them: that module needs the extra [sign]."""

    ECDSA_P256 = "ecdsa-p256"
    ED25519 = "ed25519"


def command(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the pair; made if there is none.")
    ],
    kind: Annotated[
        Type, typer.Option("--type", help="ECDSA over P-256 is what most tools read.")
    ] = Type.ECDSA_P256,
    workspace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Refuse a DIR that lies in this workspace."),
    ] = None,
) -> int:
    """Make a key pair: key.pem, which only you can read, and key.pub.pem, for the gate's host.

    Nothing is ever overwritten. Keep DIR where no agent comes: `attest` refuses a key in the
    workspace, or one that others can read. Needs the extra [sign].
    """
    guard_runner()
    from attempt_runner.keys import generate_key  # noqa: PLC0415 - needs the extra [sign]

    key = generate_key(kind.value)
    place = Path(os.path.abspath(out))
    write_pair(place, workspace, key.pem, key.public.pem)
    write_result(
        f"private key  {shown(place / PRIVATE_NAME)}\n"
        f"public key   {shown(place / PUBLIC_NAME)}\n"
        f"key id       {key.public.keyid}\n"
    )
    return 0
