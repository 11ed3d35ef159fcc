"""`explain`: why an attempt was decided as it was, field by field, and what to do next."""

from __future__ import annotations

import json
from typing import Final

from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Attempt, Json, StateDir, Workspace
from attempt_runner.cli.output import write_result
from attempt_runner.cli.tables import table
from attempt_runner.story import Story, read_story

NEXT: Final = {
    "missing_receipt": "there was no complete score: read scorer.log, mend the scorer, run a new "
    "attempt",
    "receipt_file": "the receipt is not the runner's file: find out who writes the state directory",
    "receipt_json": "the receipt was altered: find out who writes the state directory",
    "receipt_type": "the receipt was altered: find out who writes the state directory",
    "receipt_keys": "the receipt was altered: find out who writes the state directory",
    "receipt_version": "the receipt is another version's: use the runner that wrote it",
    "diff_file": "there is no diff to judge: see why the agent left none, run a new attempt",
    "prompt_file": "the prompt is gone or unreadable: restore it, run a new attempt",
    "diff_sha256": "the diff changed after it was scored: run a new attempt",
    "prompt_sha256": "the prompt changed after it was frozen: run a new attempt",
    "model_id": "the model changed after scoring: run a new attempt",
    "workspace_generation": "the score is of an earlier life of the workspace: run a new attempt",
    "attempt_id": "the receipt is another attempt's: run a new attempt",
    "verdict": "the scorer said fail: read score and scorer.log; another model is no remedy",
    "reasons": "the score gives no reason: mend the scorer, run a new attempt",
    "agent": "the agent failed: read agent.log, run a new attempt",
    "scorer": "a file of the scorer changed after it was frozen: find out why, run a new attempt",
    "processes": "something that was started would not die: look at the machine first",
    "inputs_changed": "sealed or live inputs moved: find out who writes there, run a new attempt",
    "served_model": "another model than the frozen one answered: mend the routing, run a new "
    "attempt",
    "job_log": "log and attempt disagree: hold the machine, run `attempt-runner log --verify`",
    "attempt_state": "this attempt is over: run a new attempt",
    "isolation": "evidence that was demanded is not there: run a new attempt that keeps it",
}


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


def next_step(field: str) -> str:
    """Return what to do about a field that refused; never to repeat the same check."""
    return NEXT.get(field, "run a new attempt")


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
