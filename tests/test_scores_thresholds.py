from __future__ import annotations

import pytest

from attempt_runner.scores.thresholds import parse_threshold
from bootstrap.errors import UsageError
from tests.scores import golden, read_bytes


@pytest.mark.parametrize(
    ("text", "metric", "bound"),
    [
        ("accuracy>=0.8", "accuracy", 0.8),
        ("acc,none > 1e-3", "acc,none", 0.001),
        ("suite/task/f1<=.5", "suite/task/f1", 0.5),
        ("x==-1", "x", -1.0),
        ("x<2", "x", 2.0),
        (" exact match >= 1 ", "exact match", 1.0),
    ],
)
def test_a_threshold_is_a_metric_a_comparison_and_a_number(
    text: str, metric: str, bound: float
) -> None:
    """The metric's name is the file's own."""
    threshold = parse_threshold(text)
    assert (threshold.metric, threshold.bound, threshold.text) == (metric, bound, text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "accuracy", "accuracy=0.8", ">=0.8", "a>=", "a>=nan", "a>=inf", "a>=1e999"),
        *("a>=0x1", "a>=1_0", "a>=0.8>=0.9", "a=>0.8", "a>=true", "a>=\u0663"),
    ],
)
def test_a_threshold_of_another_form_is_refused(text: str) -> None:
    """A demand that is not understood is never taken for none."""
    with pytest.raises(UsageError):
        parse_threshold(text)


def test_each_of_several_thresholds_must_hold() -> None:
    """The score's value and threshold are those of the first that misses."""
    data = golden("inspect/ok.json")
    score = read_bytes("inspect", data, "stderr<=0.5", "accuracy>=0.8")
    assert (score.verdict, score.value, score.threshold) == ("fail", 0.5, "accuracy>=0.8")
    assert len(score.reasons) == 2
