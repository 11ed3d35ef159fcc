"""`lab`: the failure that this tool prevents, replayed for real."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.options import Json
from attempt_runner.cli.output import complain, write_result
from attempt_runner.cli.tables import table
from attempt_runner.lab import replay
from bootstrap.errors import ConfigurationError

if TYPE_CHECKING:
    from attempt_runner.lab import Event, Row


def command(
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Leave the files in DIR, made if absent, to look at."),
    ] = None,
    *,
    as_json: Json = False,
) -> int:
    """Replay the failure: a stale receipt, a failover, a naive gate that accepts.

    Then run a naive gate and the bound one over the seven states of the decision table.
    Exits 0 only if every row is as it must be.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="attempt-lab-") as directory:
            events, rows = replay(Path(directory))
    else:
        events, rows = _replay_and_keep(keep)
    write_result(_as_json(events, rows) if as_json else _as_text(events, rows))
    as_expected = [item.as_expected for item in events] + [item.as_expected for item in rows]
    return 0 if all(as_expected) else 1


def _replay_and_keep(directory: Path) -> tuple[tuple[Event, ...], tuple[Row, ...]]:
    try:
        played = replay(directory)
    except OSError as error:
        raise ConfigurationError(
            f"--keep {directory}",
            expected="a directory without an earlier lab's files",
            found=error.strerror or "an error",
            remedy="name a new directory",
        ) from error
    complain(f"the files are in {directory}")
    return played


def _as_text(events: tuple[Event, ...], rows: tuple[Row, ...]) -> str:
    timeline = table(
        ("", "what happens", "what was seen"),
        [(event.time, event.story, event.seen) for event in events],
    )
    decisions = table(
        ("state", "naive gate", "bound gate", ""),
        [
            (row.state, row.naive, row.bound, "" if row.as_expected else f"must: {row.must}")
            for row in rows
        ],
    )
    return f"{timeline}\n{decisions}"


def _as_json(events: tuple[Event, ...], rows: tuple[Row, ...]) -> str:
    document = {
        "timeline": [asdict(event) for event in events],
        "decisions": [asdict(row) | {"as_expected": row.as_expected} for row in rows],
    }
    return json.dumps(document, indent=2) + "\n"
