"""`verify-attestation`: the gate, on a machine that has only a signed attestation."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from attempt_runner.cli.options import Require, misused
from attempt_runner.cli.output import write_result
from attempt_runner.cli.signing import load_public_key
from attempt_runner.evidence import FileDigest, FileFault
from attempt_runner.gate import refusal
from attempt_runner.keyfiles import read_file
from attempt_runner.ledger import consume as consume_in
from attempt_runner.ledger import open_ledger, require_unused
from attempt_runner.plan import parse_requirements
from bootstrap.bind_receipt import digest_file, is_identifier
from bootstrap.errors import Finding, UnsafeFileError

if TYPE_CHECKING:
    from bootstrap.files import Directory

_AGE: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def command(  # noqa: PLR0913, PLR0917 - each parameter is an option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `attest` wrote.")],
    public_key: Annotated[
        Path, typer.Option(metavar="KEY", help="Public key of the runner that you trust.")
    ],
    diff: Annotated[Path, typer.Option(metavar="FILE", help="The diff to merge.")],
    prompt: Annotated[Path, typer.Option(metavar="FILE", help="The prompt that was given.")],
    model: Annotated[str, typer.Option(metavar="ID", help="The model that was asked for.")],
    workspace_gen: Annotated[
        str | None, typer.Option(metavar="GEN", help="The generation that you know of.")
    ] = None,
    attempt_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The attempt that you know of.")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Refuse what was consumed or revoked in this ledger."),
    ] = None,
    require: Require = None,
    max_age: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Refuse an accept older than this: 90s, 30m, 1h, 2d."),
    ] = None,
    *,
    consume: Annotated[
        bool,
        typer.Option("--consume", help="Accept once: record it in the ledger, made if absent."),
    ] = False,
) -> int:
    """Verify a signed attestation, and that it is about this diff, prompt and model.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1. At least one of
    --workspace-gen, --attempt-id, or --consume with --ledger has to say which attempt is meant:
    an older attestation of the same bytes is good too. Needs the extra [sign].
    """
    if consume and ledger is None:
        raise misused("--consume", "--ledger DIR", "none")
    claims = _claims(model, workspace_gen, attempt_id)
    if len(claims) == 1 and not consume:
        expected = "--workspace-gen, --attempt-id, or --consume with --ledger"
        raise misused("verify-attestation", expected, "none")
    requirements = parse_requirements(require or ())
    limit = _parse_age(max_age) if max_age is not None else None
    key = load_public_key(public_key)
    # They need the extra [sign], as load_public_key does.
    from attempt_runner.attest import AgeLimit, Expected, verify_attestation  # noqa: PLC0415

    known = Expected(
        diff=_digest(diff, follow_links=False),
        prompt=_digest(prompt, follow_links=True),
        claims=claims,
        requirements=requirements,
        age=AgeLimit(datetime.now(UTC), limit) if limit else None,
    )
    with ExitStack() as held:
        opened = _open(held, ledger, create=consume)
        accepted = verify_attestation(_read(file), key, known)
        if opened:
            (consume_in if consume else require_unused)(opened, accepted)
    write_result("accept\n")
    return 0


def _claims(model: str, generation: str | None, attempt_id: str | None) -> dict[str, str]:
    given = {"model_id": model, "workspace_generation": generation, "attempt_id": attempt_id}
    return {name: _identifier(name, value) for name, value in given.items() if value is not None}


def _open(held: ExitStack, ledger: Path | None, *, create: bool) -> Directory | None:
    if ledger is None:
        return None
    return held.enter_context(open_ledger(Path(os.path.abspath(ledger)), create=create))


def _read(path: Path) -> bytes:
    from attempt_runner.dsse import MAX_ENVELOPE_BYTES  # noqa: PLC0415 - needs the extra [sign]

    try:
        return read_file(path, MAX_ENVELOPE_BYTES)
    except UnsafeFileError as error:
        raise refusal([Finding("attestation", error.expected, error.found)]) from error


def _digest(path: Path, *, follow_links: bool) -> FileDigest:
    try:
        return digest_file(path, follow_links=follow_links)
    except OSError as error:
        return FileFault("unreadable", os.strerror(error.errno or 0))
    except ValueError as error:
        return FileFault("not_regular", str(error))


def _identifier(name: str, value: str) -> str:
    if not is_identifier(value):
        rule = "1 to 256 visible ASCII characters, no space, not beginning with '-'"
        raise misused(name, rule, value)
    return value


def _parse_age(text: str) -> timedelta:
    match = _AGE.fullmatch(text)
    if match is None or not int(match[1]):
        raise misused("--max-age", "a number and one of s, m, h, d", text)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
