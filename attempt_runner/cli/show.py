"""`show`: what one attempt was and how it ended, or which attempts one job made."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Json, StateDir, Workspace
from attempt_runner.cli.output import write_result
from attempt_runner.cli.tables import pairs, table
from attempt_runner.cli.terminal import fit
from attempt_runner.story import Story, read_story
from attempt_runner.tried import Tried, attempts_of_job
from bootstrap.errors import shown
from bootstrap.joblog import verify_all

if TYPE_CHECKING:
    from bootstrap.joblog import Record

# Fields that every record of an attempt shares, and the head of the table already shows.
SHARED = frozenset({"generation", "attempt_id", "model_id"})


def command(
    workspace: Workspace,
    attempt: Annotated[
        str | None,
        typer.Argument(
            metavar="[ATTEMPT]", help="Attempt id; without one, the last job's attempts are listed."
        ),
    ] = None,
    state_dir: StateDir = None,
    *,
    job: Annotated[
        bool, typer.Option("--job", help="List the attempts of the job that ATTEMPT was made for.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show one attempt: its frozen identity, its records in order, and its outcome.

    Without ATTEMPT, or with --job: the attempts of one job in order, why each gave way to the
    next, and whose receipt was accepted. Exits 0 when it could tell, whatever it tells.
    """
    with open_workspace_state(workspace, state_dir, caller()) as state:
        if attempt is None or job:
            tried = attempts_of_job(verify_all(state.directory), attempt)
            write_result(_job_as_json(tried) if as_json else fit(_job_as_text(tried)))
        else:
            story = read_story(state, attempt)
            write_result(_as_json(story) if as_json else fit(_as_text(story)))
    return 0


def _job_as_text(tried: tuple[Tried, ...]) -> str:
    rows = [(one.attempt_id, one.model_id, one.outcome, one.gave_way) for one in tried]
    return table(("attempt", "model", "outcome", "gave way for"), rows)


def _job_as_json(tried: tuple[Tried, ...]) -> str:
    accepted = [one.attempt_id for one in tried if one.outcome in ("accepted", "consumed")]
    document = {
        "attempts": [asdict(one) for one in tried],
        "accepted": accepted[0] if accepted else None,
    }
    return json.dumps(document, indent=2) + "\n"


def _as_text(story: Story) -> str:
    identity = story.identity
    head = pairs(
        [
            ("attempt", identity.attempt_id),
            ("outcome", story.outcome),
            ("model", identity.model_id),
            ("generation", identity.generation),
            ("workspace", str(identity.workspace)),
            ("diff", str(identity.diff.path) if identity.diff else "captured"),
            ("prompt", str(identity.prompt.path)),
            ("agent", " ".join(identity.agent.argv) if identity.agent else "none"),
            ("scorer", " ".join(identity.scorer.argv)),
            ("scored", identity.scored),
            ("isolation", _tiers(story)),
            ("files", story.path),
        ]
    )
    rows = [(record.time, record.event, _details(record)) for record in story.records]
    fields = ", ".join(shown(item.field) for item in story.findings)
    why = f"\nrefused: {fields}; `attempt-runner explain` says why\n" if fields else ""
    return f"{head}\n{table(('time', 'event', ''), rows)}{why}"


def _tiers(story: Story) -> str:
    isolation = story.identity.isolation
    tiers = {role: isolation.get(f"{role}_tier") for role in ("agent", "scorer")}
    return ", ".join(f"{role} {tier}" for role, tier in tiers.items() if tier)


def _details(record: Record) -> str:
    own = ((name, value) for name, value in record.fields.items() if name not in SHARED)
    return " ".join(
        f"{name}={value}"
        for name, value in own
        if value is not None and value is not False and value not in ("", [])
    )


def _as_json(story: Story) -> str:
    identity = story.identity
    document = {
        "attempt_id": identity.attempt_id,
        "outcome": story.outcome,
        "model_id": identity.model_id,
        "generation": identity.generation,
        "workspace": str(identity.workspace),
        "scorer": list(identity.scorer.argv),
        "agent": list(identity.agent.argv) if identity.agent else None,
        "scored": identity.scored,
        "isolation": dict(identity.isolation),
        "files": story.path,
        "findings": [
            {"field": item.field, "expected": item.expected, "found": item.found}
            for item in story.findings
        ],
        "records": [
            {"seq": item.seq, "time": item.time, "event": item.event, **item.fields}
            for item in story.records
        ],
    }
    return json.dumps(document, indent=2) + "\n"
