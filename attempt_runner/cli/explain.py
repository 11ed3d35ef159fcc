"""`explain`: why an attempt was decided as it was, field by field, and what to do next."""

from __future__ import annotations

import json

from attempt_runner.advice import next_step
from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Attempt, Json, StateDir, Workspace
from attempt_runner.cli.output import write_result
from attempt_runner.cli.tables import table
from attempt_runner.story import Story, read_story


def command(
    attempt: Attempt, workspace: Workspace, state_dir: StateDir = None, *, as_json: Json = False
) -> int:
    """Explain a decision: each field that refused, expected beside found, and what to do next.

    Exits 0 when it could tell, whatever it tells.
    """
    with open_workspace_state(workspace, state_dir, caller()) as state:
        story = read_story(state, attempt)
    write_result(_as_json(story) if as_json else _as_text(story))
    return 0


def _as_text(story: Story) -> str:
    head = f"{story.identity.attempt_id} {_summary(story)}\n"
    if not story.findings:
        return head
    rows = [(item.field, item.expected, item.found) for item in story.findings]
    steps = "".join(f"{item.field}: {next_step(item.field)}\n" for item in story.findings)
    return f"{head}\n{table(('field', 'expected', 'found'), rows)}\n{steps}"


def _summary(story: Story) -> str:
    summaries = {
        "accepted": "was accepted: every bound field matched",
        "rejected": "was rejected; that is final",
        "attempt_aborted": "was aborted before a decision; it counts for nothing",
        "consumed": "was accepted and consumed: no gate accepts it again",
        "open": "has no closing record: it is running, or its runner died",
    }
    return summaries[story.outcome]


def _as_json(story: Story) -> str:
    document = {
        "attempt_id": story.identity.attempt_id,
        "outcome": story.outcome,
        "summary": _summary(story),
        "findings": [
            {
                "field": item.field,
                "expected": item.expected,
                "found": item.found,
                "next": next_step(item.field),
            }
            for item in story.findings
        ],
    }
    return json.dumps(document, indent=2) + "\n"
