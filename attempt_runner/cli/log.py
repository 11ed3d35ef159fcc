"""`log`: print a workspace's job log, verify its chain, or close a broken one aside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Json, StateDir, Workspace
from attempt_runner.cli.output import write_result
from bootstrap.errors import shown
from bootstrap.joblog import Record, verify_all
from bootstrap.logseal import seal_broken
from bootstrap.state import lock

if TYPE_CHECKING:
    from bootstrap.state import State


def command(
    workspace: Workspace,
    state_dir: StateDir = None,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the whole chain and print how long it is.")
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
    """Print the job log of a workspace, oldest record first, checking its chain on the way.

    A chain that is broken is named with its line: 77. An unkeyed chain cannot show that its
    end was cut off together with the head file, or that all of it was written anew.
    """
    with open_workspace_state(workspace, state_dir, caller()) as state:
        if close_broken:
            return _seal(state)
        count = 0
        for record in verify_all(state.directory):
            count += 1
            if not verify:
                write_result(_line_of_json(record) if as_json else _line(record))
    if verify:
        write_result(
            json.dumps({"records": count, "verified": True}) + "\n"
            if as_json
            else f"verified {count} records\n"
        )
    return 0


def _seal(state: State) -> int:
    with lock(state, 0):
        kept = seal_broken(state.directory)
    write_result(f"kept the broken log as {shown(kept)}; a new log names its digest\n")
    return 0


def _line(record: Record) -> str:
    fields = " ".join(f"{name}={shown(_text(value))}" for name, value in record.fields.items())
    return f"{record.seq} {shown(record.time)} {shown(record.event)} {fields}".rstrip() + "\n"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line_of_json(record: Record) -> str:
    document = {"seq": record.seq, "time": record.time, "event": record.event, **record.fields}
    return json.dumps(document) + "\n"
