"""The rules that all formats share: what makes a pass, and what is said about it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from attempt_runner.scores.fields import is_blank
from attempt_runner.scores.score import MAX_CAUSE_CHARS, Counts, Score
from bootstrap.bind_receipt import MAX_REASON_CHARS, MAX_REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attempt_runner.scores.score import Source, Verdict

Outcome = Literal["passed", "failed", "errored", "skipped"]

# Of a receipt's 1 MiB, as JSON spells it: the rest is left to evidence.
MAX_REASON_BYTES: Final = 512 * 1024
_NOTE_CHARS: Final = 64  # room for the note of what was cut


@dataclass(frozen=True, slots=True)
class Case:
    """One test as its tool reported it."""

    name: str
    outcome: Outcome
    message: str = ""


def judge_cases(
    source: Source,
    cases: Sequence[Case],
    *,
    requested: Sequence[str] = (),
    answered: Sequence[str] = (),
    errors_fail: bool = True,
) -> Score:
    """Return the score of a file of test cases.

    1. A failed case makes it a fail: so does a test that failed and passed.
    2. An errored one does too where `errors_fail`; where an error is the tool's and not the
       patch's, it makes it an error.
    3. No executed case makes it `no_tests`.
    4. Otherwise it is a pass.

    Not checked here: the exit code, and the operator's own minimum.
    """
    counts = count(cases)
    bad = [case for case in cases if case.outcome in ("failed", "errored")]
    verdict = _verdict(counts, errors_fail=errors_fail)
    decided = verdict in ("pass", "fail")
    said = [tally(counts), *map(_complaint, bad)]
    return Score(
        verdict=verdict,
        counts=counts,
        requested=distinct(requested),
        answered=distinct(answered),
        reasons=bounded(said) if decided else (),
        source_sha256=source.sha256,
        cause="" if decided else "; ".join(said)[:MAX_CAUSE_CHARS],
    )


def _verdict(counts: Counts, *, errors_fail: bool) -> Verdict:
    if counts.failed or (counts.errored and errors_fail):
        return "fail"
    if counts.errored:
        return "error"
    return "pass" if counts.executed >= 1 else "no_tests"


def count(cases: Sequence[Case]) -> Counts:
    """Count the cases by outcome."""
    by = Counter(case.outcome for case in cases)
    return Counts(len(cases), by["passed"], by["failed"], by["errored"], by["skipped"])


def tally(counts: Counts) -> str:
    """Return the counts as a sentence for people."""
    return (
        f"{counts.passed} of {counts.tests} tests passed, {counts.failed} failed, "
        f"{counts.errored} errored, {counts.skipped} skipped"
    )


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without repeats, in the order of their first appearance."""
    return tuple(dict.fromkeys(names))


def _complaint(case: Case) -> str:
    text = f"{case.outcome}: {case.name}"
    return text if is_blank(case.message) else f"{text}: {case.message}"


def bounded(reasons: Sequence[str]) -> tuple[str, ...]:
    """Cut reasons to what a receipt holds, saying in place what was cut.

    Nothing else is changed: no character is stripped or replaced.
    """
    kept: list[str] = []
    room = MAX_REASON_BYTES
    for index, reason in enumerate(reasons):
        text = _shortened(reason)
        room -= len(json.dumps(text))
        last = index == len(reasons) - 1
        if room < 0 or (len(kept) == MAX_REASONS - 1 and not last):
            return (*kept, f"[cut: {len(reasons) - index} more reasons]")
        kept.append(text)
    return tuple(kept)


def _shortened(reason: str) -> str:
    if len(reason) <= MAX_REASON_CHARS:
        return reason
    keep = MAX_REASON_CHARS - _NOTE_CHARS
    return f"{reason[:keep]} [cut: {len(reason) - keep} more characters]"
