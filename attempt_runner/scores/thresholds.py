"""The operator's demands on numeric scores: `metric>=0.8`, read once and held against a file."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from attempt_runner.scores.fields import as_number
from attempt_runner.scores.rules import bounded, distinct
from attempt_runner.scores.score import NoScoreError, Score, Threshold
from bootstrap.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attempt_runner.scores.score import Comparison, Counts, Source

# The metric's name may hold anything but a comparison: `acc,none`, `suite/task/accuracy`.
_FORM: Final = re.compile(r"([^<>=]*[^<>=\s])\s*(>=|<=|==|>|<)\s*([0-9.eE+-]+)")
_HOLDS: Final[dict[Comparison, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a file: its own name, what it belongs to, and its value as parsed."""

    name: str
    owners: tuple[str, ...]
    value: object

    def answers_to(self, wanted: str) -> bool:
        """Tell whether a threshold's metric means this one: bare, or with an owner before it."""
        return wanted == self.name or wanted in [f"{owner}/{self.name}" for owner in self.owners]

    @property
    def label(self) -> str:
        """The name that means this metric and no other task's."""
        return f"{self.owners[0]}/{self.name}" if self.owners else self.name


def parse_threshold(text: str) -> Threshold:
    """Return `metric>=0.8` as a threshold; the bound is a finite decimal. Raises UsageError."""
    match = _FORM.fullmatch(text.strip())
    try:
        bound = float(match[3]) if match else math.nan
    except ValueError:
        bound = math.nan
    if match is None or not math.isfinite(bound):
        raise UsageError(
            "threshold", expected="one such as accuracy>=0.8", found=text, remedy="correct it"
        )
    return Threshold(text, match[1], cast("Comparison", match[2]), bound)


@dataclass(frozen=True, slots=True)
class _Judged:
    threshold: Threshold
    label: str
    value: float

    @property
    def holds(self) -> bool:
        return _HOLDS[self.threshold.comparison](self.value, self.threshold.bound)

    @property
    def sentence(self) -> str:
        word = "keeps" if self.holds else "misses"
        return f"{self.label} = {self.value} {word} {self.threshold.text}"


def judge_metrics(
    source: Source,
    metrics: Sequence[Metric],
    thresholds: Sequence[Threshold],
    *,
    counts: Counts,
    requested: Sequence[str] = (),
    answered: Sequence[str] = (),
) -> Score:
    """Return the score of a file of numbers.

    1. The operator gave a threshold; the error for none shows the metrics there are.
    2. Each threshold means at least one metric of the file, a bare name every task's.
    3. Each of these is a finite number.
    4. All of them keep their threshold: a pass, else a fail.

    Raises NoScoreError for 1 to 3. The score's value is the first that misses, else the first.
    """
    if not thresholds:
        raise _no_metric(
            "threshold: expected one such as --threshold 'metric>=0.8', got none", metrics
        )
    judged = [one for threshold in thresholds for one in _judge(threshold, metrics)]
    missed = [one for one in judged if not one.holds]
    shown = (missed or judged)[0]
    return Score(
        verdict="fail" if missed else "pass",
        counts=counts,
        value=shown.value,
        threshold=shown.threshold.text,
        requested=distinct(requested),
        answered=distinct(answered),
        reasons=bounded([one.sentence for one in (*missed, *(one for one in judged if one.holds))]),
        source_sha256=source.sha256,
    )


def _judge(threshold: Threshold, metrics: Sequence[Metric]) -> list[_Judged]:
    meant = [metric for metric in metrics if metric.answers_to(threshold.metric)]
    if not meant:
        raise _no_metric(
            f"threshold: expected a metric named {threshold.metric}, got none", metrics
        )
    return [_Judged(threshold, one.label, as_number(one.value, one.label)) for one in meant]


def _no_metric(what: str, metrics: Sequence[Metric]) -> NoScoreError:
    found = ", ".join(f"{metric.label}={metric.value}" for metric in metrics)
    return NoScoreError("error", f"{what}; metrics found: {found or 'none'}")
