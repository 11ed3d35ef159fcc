"""`log`: print a job log, verify its chain, sign its end, or close a broken one aside."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.logview import View, parse_since
from attempt_runner.cli.logview import follow as follow_log
from attempt_runner.cli.options import Json, StateDir, misused
from attempt_runner.cli.output import write_result
from attempt_runner.cli.signing import hold_key, load_public_key, read_named
from attempt_runner.ledger import open_ledger
from bootstrap.chain import LOG_NAME
from bootstrap.errors import shown
from bootstrap.joblog import Record, verify_all
from bootstrap.lock import hold_lock
from bootstrap.logseal import seal_broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bootstrap.files import Directory


def command(  # noqa: PLR0913 - each parameter is an option
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The note to compare with --verify --checkpoint."),
    ] = None,
    *,
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Workspace whose log it is.")
    ] = None,
    state_dir: StateDir = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A ledger, in place of a workspace.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Private key to sign a checkpoint with.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Public key to check a checkpoint with.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only records since a time, or an age: 30m, 2h, 1d."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help="Only records of this event. Repeatable."),
    ] = None,
    attempt: Annotated[
        str | None, typer.Option(metavar="ATTEMPT", help="Only records of this attempt.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on printing what is appended, until a signal.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole chain and print how long it is.")
    ] = False,
    checkpoint: Annotated[
        bool,
        typer.Option(
            "--checkpoint",
            help="Sign the log's end with --key and print the note; with --verify, prove that the "
            "log extends the one in FILE, signed by --public-key.",
        ),
    ] = False,
    close_broken: Annotated[
        bool,
        typer.Option(
            "--seal-broken",
            help="Keep a broken log aside and start a new one that names its digest.",
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Print a job log, oldest record first, checking its chain on the way.

    A chain that is broken is named with its line: 77. An unkeyed chain cannot show that its
    end was cut off together with the head file, or that all of it was written anew: keep a
    checkpoint elsewhere, and compare it with --verify --checkpoint FILE.
    """
    _check_modes(checkpoint, verify, file, key, public_key)
    with _open_log(workspace, state_dir, ledger) as (directory, inner):
        if close_broken:
            return _seal(directory)
        if verify:
            count = _verify(directory, file, public_key)
            return _tell(count, as_json=as_json)
        if key:
            write_result(_sign(directory, key, inner))
            return 0
        moment = parse_since(since, datetime.now(UTC)) if since is not None else None
        view = View(moment, frozenset(event or ()), attempt)
        records = follow_log(directory, ctx.obj) if follow else verify_all(directory)
        for record in filter(view.shows, records):
            write_result(_line_of_json(record) if as_json else _line(record))
    return 0


def _check_modes(
    checkpoint: bool,  # noqa: FBT001 - the flags as they were given
    verify: bool,  # noqa: FBT001 - as above
    file: Path | None,
    key: Path | None,
    public_key: Path | None,
) -> None:
    given = {"FILE": file, "--key": key, "--public-key": public_key}
    found = {name for name, value in given.items() if value is not None}
    wanted = set()
    if checkpoint:
        wanted = {"FILE", "--public-key"} if verify else {"--key"}
    if found != wanted:
        mode = "log" + " --verify" * verify + " --checkpoint" * checkpoint
        names = " and ".join(sorted(wanted)) or "neither FILE nor key"
        raise misused(mode, names, ", ".join(sorted(found)) or "none")


@contextmanager
def _open_log(
    workspace: Path | None, state_dir: Path | None, ledger: Path | None
) -> Iterator[tuple[Directory, Path | None]]:
    """Open where the log lies; tell the workspace beside it, if there is one."""
    if workspace is not None and ledger is None:
        with open_workspace_state(workspace, state_dir, caller()) as state:
            yield state.directory, state.workspace
    elif ledger is not None and workspace is None:
        with open_ledger(Path(os.path.abspath(ledger)), create=False) as directory:
            yield directory, None
    else:
        raise misused("log", "either --workspace DIR or --ledger DIR", "both or neither")


def _seal(directory: Directory) -> int:
    with hold_lock(directory, 0):
        kept = seal_broken(directory)
    write_result(f"kept the broken log as {shown(kept)}; a new log names its digest\n")
    return 0


def _sign(directory: Directory, path: Path, workspace: Path | None) -> str:
    key = hold_key(path, workspace)
    from attempt_runner.checkpoint import (  # noqa: PLC0415 - needs the extra [sign]
        sign_checkpoint,
        take_checkpoint,
    )

    return sign_checkpoint(take_checkpoint(verify_all(directory)), key).decode("utf-8")


def _verify(directory: Directory, file: Path | None, public_key: Path | None) -> int:
    """Verify the whole chain, and that it extends a checkpoint where one is given."""
    if file is None or public_key is None:
        return sum(1 for _ in verify_all(directory))
    key = load_public_key(public_key)
    from attempt_runner.checkpoint import (  # noqa: PLC0415 - needs the extra [sign]
        MAX_CHECKPOINT_BYTES,
        open_checkpoint,
        require_extension,
    )

    checkpoint = open_checkpoint(read_named(file, MAX_CHECKPOINT_BYTES, "checkpoint"), key)
    return require_extension(checkpoint, verify_all(directory), str(directory.path / LOG_NAME))


def _tell(count: int, *, as_json: bool) -> int:
    document = json.dumps({"records": count, "verified": True})
    write_result(f"{document}\n" if as_json else f"verified {count} records\n")
    return 0


def _line(record: Record) -> str:
    fields = " ".join(f"{name}={shown(_text(value))}" for name, value in record.fields.items())
    return f"{record.seq} {shown(record.time)} {shown(record.event)} {fields}".rstrip() + "\n"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line_of_json(record: Record) -> str:
    document = {"seq": record.seq, "time": record.time, "event": record.event, **record.fields}
    return json.dumps(document) + "\n"
