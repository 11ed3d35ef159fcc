"""The failure replayed in a directory: T0 to T6, then the decision table, each gate run for real.

The naive gate, which this project exists to replace, lives here and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bootstrap import bind_receipt
from bootstrap.bind_receipt import Identity, build_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MODEL_A: Final = "model-a"
MODEL_B: Final = "model-b"
YESTERDAY: Final = "gen-yesterday"
TODAY: Final = "gen-today"
DIFF: Final = b"--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
PROMPT: Final = b"Fix the bug in app.py.\n"
REASONS: Final = ("the tests pass",)


@dataclass(frozen=True, slots=True)
class Event:
    """One moment of the timeline: what happens, and what was seen when it was made to happen."""

    time: str
    story: str
    seen: str
    as_expected: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One state of the decision table: what each gate said, and what the bound one must say."""

    state: str
    naive: str
    bound: str
    must: str

    @property
    def as_expected(self) -> bool:
        """Tell whether the bound gate said what it must."""
        return self.bound == self.must


@dataclass(frozen=True, slots=True)
class Job:
    """A job directory of the lab, laid out as a script that knows one receipt name would."""

    directory: Path

    @property
    def diff(self) -> Path:
        """The patch under judgement."""
        return self.directory / "patch.diff"

    @property
    def prompt(self) -> Path:
        """The prompt that the model was given."""
        return self.directory / "prompt.txt"

    @property
    def receipt(self) -> Path:
        """The one receipt name that every attempt shares: the cause of it all."""
        return self.directory / "receipt.json"


def replay(directory: Path) -> tuple[tuple[Event, ...], tuple[Row, ...]]:
    """Replay the failure below an empty directory and return timeline and decision table.

    The files stay there to be looked at. Raises OSError if it cannot be written.
    """
    return _timeline(directory), _decision_table(directory / "table")


def naive_gate(job: Job) -> str:
    """Say `accept` if the receipt is a pass for this diff's hash, as a script without a binder."""
    try:
        receipt: Any = json.loads(job.receipt.read_bytes())
    except OSError:
        return "reject"
    same = receipt.get("diff_sha256") == hashlib.sha256(job.diff.read_bytes()).hexdigest()
    return "accept" if same and receipt.get("verdict") == "pass" else "reject"


def bound_gate(job: Job, model_id: str, generation: str) -> str:
    """Say what the binder says, run as a job image would run it: the bare file, isolated."""
    told = subprocess.run(
        [
            *(sys.executable, "-I", bind_receipt.__file__, "verify"),
            *("--receipt", job.receipt, "--diff", job.diff, "--prompt", job.prompt),
            *("--model", model_id, "--workspace-gen", generation),
        ],
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    return told.stdout.strip()


def _lay_out(directory: Path) -> Job:
    os.makedirs(directory)
    job = Job(directory)
    job.diff.write_bytes(DIFF)
    job.prompt.write_bytes(PROMPT)
    return job


def _score(job: Job, model_id: str, generation: str, verdict: str = "pass") -> None:
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (job.diff, job.prompt)]
    identity = Identity(digests[0], digests[1], model_id, generation, attempt_id=None)
    job.receipt.write_bytes(build_receipt(identity, verdict, REASONS))


def _timeline(directory: Path) -> tuple[Event, ...]:
    earlier, job = _lay_out(directory / "yesterday"), _lay_out(directory / "today")
    _score(earlier, MODEL_A, YESTERDAY)
    shutil.copy(earlier.receipt, job.receipt)
    found = job.receipt.exists()
    _score(job, MODEL_A, TODAY)
    scored = json.loads(job.receipt.read_bytes())["model_id"]
    selected = MODEL_B
    skipped = job.receipt.exists()
    logged, receipted = selected, json.loads(job.receipt.read_bytes())["model_id"]
    naive, bound = naive_gate(job), bound_gate(job, selected, TODAY)
    return (
        Event("T0", "a prior receipt lies in the recycled job directory", f"found: {found}", found),
        Event("T1", f"{MODEL_A} writes a pass receipt", f"for {scored}", scored == MODEL_A),
        Event("T2", f"{MODEL_A} drops out", f"selected: {selected}", selected == MODEL_B),
        Event("T3", "the receipt exists, so scoring is skipped", f"skipped: {skipped}", skipped),
        Event("T4", "the naive gate compares the diff hash", naive, naive == "accept"),
        Event(
            "T5",
            "log and receipt are compared",
            f"log {logged}, receipt {receipted}",
            logged != receipted,
        ),
        Event("T6", "the bound gate compares every field", bound, bound == "reject: model_id"),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    state: str
    must: str
    model_id: str = MODEL_A
    generation: str = TODAY
    alter: Callable[[Job], object] = id


def _fail(job: Job) -> None:
    _score(job, MODEL_A, TODAY, "fail")


def _empty_reasons(job: Job) -> None:
    # The binder refuses to write such a receipt, so another program must have.
    receipt = json.loads(job.receipt.read_bytes())
    job.receipt.write_text(json.dumps(receipt | {"reasons": []}))


def _change_diff(job: Job) -> None:
    job.diff.write_bytes(DIFF.replace(b"x = 2", b"x = 3"))


def _remove_receipt(job: Job) -> None:
    job.receipt.unlink()


CASES: Final[Sequence[_Case]] = (
    _Case("same diff, new model", "reject: model_id", model_id=MODEL_B),
    _Case("same diff, new generation", "reject: workspace_generation", generation="gen-new"),
    _Case("same identity, verdict fail", "reject: verdict", alter=_fail),
    _Case("same identity, empty reasons", "reject: reasons", alter=_empty_reasons),
    _Case("diff changed after scoring", "reject: diff_sha256", alter=_change_diff),
    _Case("receipt missing", "reject: missing_receipt", alter=_remove_receipt),
    _Case("fresh match with reasons", "accept"),
)


def _decision_table(directory: Path) -> tuple[Row, ...]:
    return tuple(
        _row(_lay_out(directory / str(number)), case) for number, case in enumerate(CASES, start=1)
    )


def _row(job: Job, case: _Case) -> Row:
    _score(job, MODEL_A, TODAY)
    case.alter(job)
    bound = bound_gate(job, case.model_id, case.generation)
    return Row(case.state, naive_gate(job), bound, case.must)
