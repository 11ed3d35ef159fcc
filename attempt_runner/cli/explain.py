"""`explain`: why an attempt was decided as it was, field by field, and what to do next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from attempt_runner.advice import next_step
from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Attempt, Json, StateDir, Workspace
from attempt_runner.cli.output import write_result
from attempt_runner.cli.tables import pairs
from attempt_runner.cli.terminal import paint, wrap
from attempt_runner.story import Story, read_story
from bootstrap.errors import shown

if TYPE_CHECKING:
    from bootstrap.errors import Finding

INDENT: Final = 12  # of a value's second line: as wide as "  expected  "


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
    head = f"{story.identity.attempt_id}\n{paint(_summary(story), story.outcome)}\n"
    if not story.findings:
        return f"{head}\n{wrap(f'next: {_next(story)}', INDENT)}".rstrip() + "\n"
    return head + "".join(map(_finding_as_text, story.findings))


def _finding_as_text(item: Finding) -> str:
    rows = [("  expected", item.expected), ("  found", item.found)]
    rows.append(("  next", next_step(item.field)))
    return f"\n{paint(shown(item.field), 'strong')}\n{wrap(pairs(rows), INDENT)}"


def _next(story: Story) -> str:
    """Return what to do about an attempt that no field refused."""
    attempt_id, workspace = story.identity.attempt_id, shown(story.identity.workspace)
    steps = {
        "accepted": f"right before the merge, run `attempt-runner gate {attempt_id} "
        f"--workspace {workspace} --consume`",
        "attempt_aborted": "run a new attempt",
        "consumed": "nothing; for another merge, run a new attempt",
        "revoked": "merge nothing on it; run a new attempt",
        "open": "if no runner is at work, run a new attempt: it closes this one first",
    }
    return steps.get(story.outcome, "run a new attempt")


def _summary(story: Story) -> str:
    summaries = {
        "accepted": "was accepted: every bound field matched",
        "rejected": "was rejected; that is final",
        "attempt_aborted": "was aborted before a decision; it counts for nothing",
        "revoked": "was revoked: no gate accepts it again",
        "consumed": "was accepted and consumed: no gate accepts it again",
        "open": "has no closing record: it is running, or its runner died",
    }
    return summaries.get(story.outcome, f"ended as {shown(story.outcome)}")


def _as_json(story: Story) -> str:
    document = {
        "attempt_id": story.identity.attempt_id,
        "outcome": story.outcome,
        "summary": _summary(story),
        "next": _next(story) if not story.findings else "",
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
