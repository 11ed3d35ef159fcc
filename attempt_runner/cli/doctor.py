"""`doctor`: what this machine can keep from an agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.options import Json, StateDir
from attempt_runner.cli.output import write_result
from attempt_runner.cli.tables import pairs, table
from attempt_runner.doctor import NESTED, survey
from attempt_runner.isolate import PROMISES
from attempt_runner.users import resolve_user
from bootstrap.reaper import guard_runner
from bootstrap.state import default_root

if TYPE_CHECKING:
    from attempt_runner.doctor import Survey
    from attempt_runner.probe import Examined


def command(
    state_dir: StateDir = None,
    scratch_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where exchange directories would be; default: $TMPDIR."),
    ] = None,
    agent_user: Annotated[
        str | None, typer.Option(metavar="USER", help="Probe as this user; only root can.")
    ] = None,
    allow_socket: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Control socket to accept. Repeatable."),
    ] = None,
    *,
    as_json: Json = False,
) -> int:
    """Probe every isolation tier by what a canary cannot do in it, and print what each keeps.

    The canary tries to change and read a state directory, to signal, trace and limit the
    runner, to reach control sockets and the network, and to leave something behind. Exits 0
    whatever it finds.
    """
    guard_runner()
    environ = dict(os.environ)
    found = survey(
        environ,
        user=resolve_user(agent_user) if agent_user else None,
        state_root=_real(state_dir or default_root(environ, os.geteuid())),
        scratch=_real(scratch_dir or Path(environ.get("TMPDIR") or "/tmp")),  # noqa: S108 - the default
        allowed_sockets=tuple(allow_socket or ()),
    )
    document = found.as_document()
    write_result(json.dumps(document, indent=2, sort_keys=True) + "\n" if as_json else _show(found))
    return 0


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _show(found: Survey) -> str:
    head = ("tier", "available", *PROMISES, "why not")
    facts = [(name.replace("_", " "), _plain(value)) for name, value in found.facts.items()]
    return (
        table(head, [_row(examined) for examined in found.tiers])
        + f"\n{pairs([('auto', found.auto), *facts])}\nnote: {NESTED}\n"
    )


def _row(examined: Examined) -> tuple[str, ...]:
    isolation = examined.isolation
    if isolation is None:
        return (examined.tier, "no", *("-" for _ in PROMISES), examined.why)
    kept = ("kept" if isolation.promises[name] else "no" for name in PROMISES)
    why = "; ".join(f"{name}: {note}" for name, note in isolation.notes.items())
    return (examined.tier, "yes", *kept, why)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
