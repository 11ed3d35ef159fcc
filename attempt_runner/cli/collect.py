"""`collect`: one summary over many state directories."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.options import Json, misused
from attempt_runner.cli.output import complain, write_result
from attempt_runner.collect import COUNTS, Tally, find_logs, tally_log
from bootstrap.errors import IntegrityError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = "{:>9} {:>11} {:>8} {:>8} {:>8} {:>7} {:>5} {:>11}  {}\n"


def command(
    states: Annotated[
        list[Path],
        typer.Argument(
            metavar="STATE...", help="State directories, or directories that such were copied to."
        ),
    ],
    *,
    as_json: Json = False,
    as_table: Annotated[
        bool, typer.Option("--table", help="Print columns for people, as without --json.")
    ] = False,
) -> int:
    """Count records and outcomes over many job logs, and verify each chain.

    A line a log as it is read, and their sum. Exits 77 when a chain is broken, which the
    log's line says. Memory does not grow with the logs.
    """
    if as_json and as_table:
        raise misused("--json", "it or --table", "both")
    places = tuple(Path(os.path.abspath(state)) for state in states)
    return _collect(places, *((_as_json, _json_end) if as_json else (_as_row, _row_end)))


def _collect(
    places: tuple[Path, ...], show: Callable[[Tally, int], str], end: Callable[[Tally], str]
) -> int:
    total, broken = Tally("total"), 0
    for number, place in enumerate(find_logs(places)):
        tally = tally_log(place)
        write_result(show(tally, number))
        total.add(tally)
        broken += bool(tally.broken)
        if tally.broken:
            complain(f"{shown(place)}: {tally.broken}")
    write_result(end(total))
    return IntegrityError.status if broken else 0


def _as_row(tally: Tally, number: int) -> str:
    head = "" if number else ROW.format(*(name.replace("_", " ") for name in COUNTS), "log")
    note = "  BROKEN CHAIN" if tally.broken else ""
    return head + ROW.format(*_counts(tally), shown(tally.name) + note)


def _row_end(total: Tally) -> str:
    rejects = " ".join(f"{name}={count}" for name, count in total.rejects.most_common())
    return ROW.format(*_counts(total), total.name) + (f"rejects: {rejects}\n" if rejects else "")


def _counts(tally: Tally) -> tuple[int, ...]:
    return tuple(getattr(tally, name) for name in COUNTS)


def _as_json(tally: Tally, number: int) -> str:
    return (", " if number else '{"logs": [') + json.dumps(tally.as_row())


def _json_end(total: Tally) -> str:
    return f'], "total": {json.dumps(total.as_row())}}}\n'
