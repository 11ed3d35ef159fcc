"""`prune`: remove the directories of attempts that are closed, and say which."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from attempt_runner.change import BASELINE
from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Json, StateDir, Workspace, misused
from attempt_runner.cli.output import write_result
from attempt_runner.prune import Doomed, prune, select
from bootstrap.state import lock

LOCK_WAIT: Final = 30.0  # seconds that pruning waits for a gate; a job is not waited for longer
_AGE: Final = re.compile("([0-9]{1,6})([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


def command(
    workspace: Workspace,
    state_dir: StateDir = None,
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Keep the last N closed attempts."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Prune what was closed longer ago: 12h, 30d, 8w."),
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Remove closed attempts' directories, quarantined log tails and a spent baseline.

    The job log stays whole, and says what was removed; a pruned attempt cannot be accepted any
    more. An attempt that is open is never removed. Waits up to 30 seconds for the workspace
    lock: 75 after that.
    """
    if (keep is None) == (older_than is None):
        raise misused("prune", "one of --keep N, --older-than AGE", "both or neither")
    before = _moment(older_than) if older_than is not None else None
    with open_workspace_state(workspace, state_dir, caller()) as state, lock(state, LOCK_WAIT):
        doomed = select(state, keep=keep, closed_before=before)
        if not dry_run:
            prune(state, doomed)
    write_result(_as_json(doomed, dry_run=dry_run) if as_json else _as_text(doomed, dry_run))
    return 0


def _moment(age: str) -> datetime:
    match = _AGE.fullmatch(age)
    if not match:
        raise misused("--older-than", "a number and h, d or w: 30d", age)
    try:
        return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError as error:
        raise misused("--older-than", "an age since the year 1", age) from error


def _as_json(doomed: Doomed, *, dry_run: bool) -> str:
    return json.dumps(asdict(doomed) | {"dry_run": dry_run}) + "\n"


def _as_text(doomed: Doomed, dry_run: bool) -> str:  # noqa: FBT001 - the flag as it was given
    verb = "would prune" if dry_run else "pruned"
    names = [*doomed.attempts, *doomed.tails, *([BASELINE] if doomed.baseline else [])]
    return "".join(f"{verb} {name}\n" for name in names) or "nothing to prune\n"
