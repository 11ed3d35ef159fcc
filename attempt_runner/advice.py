"""What to do next about each field that refused: never to repeat the same check."""

from __future__ import annotations

from typing import Final

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
    "protected_paths": "the change touches protected paths: have a person look at it first",
    "coverage": "the diff does not hold the whole change: find out what hid, run a new attempt",
    "attestation": "the attestation does not hold: ask its maker; merge nothing on it",
}


def next_step(field: str) -> str:
    """Return what to do about a field that refused."""
    return NEXT.get(field, "run a new attempt")
