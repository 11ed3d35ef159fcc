"""lm-evaluation-harness: the results_*.json of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.score import Counts, NoScoreError, wrong
from attempt_runner.scores.thresholds import Metric, judge_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.score import Score, ScoreRules, Source

_NOT_METRICS: Final = {"name", "alias", "sample_len", "sample_count"}
# Where the harness looks for its model's name; an adapter changes the model beneath it.
_MODEL_KEYS: Final = ("peft", "delta", "pretrained", "model", "path", "engine")


def read(source: Source, rules: ScoreRules) -> Score:
    """Return the score of a results file, or raise NoScoreError.

    1. One strict JSON object. The harness writes NaN where a metric has no value, and so
       not JSON: such a file is refused.
    2. No limit, and each task ran over its whole data set.
    3. No request cache: its key leaves the model out, so another model's answer may be in it.
    4. The rules of `judge_metrics`.

    The model is in `config.model_args`; `model_name` is a random word where none is known.
    """
    report = fields.load_object(source.data, "lm-eval")
    results = fields.child(report, "results", "lm-eval")
    config = fields.child(report, "config", "lm-eval")
    _require_fresh(config)
    samples = _samples(report, results)
    metrics = [
        Metric(name, (task,), value)
        for task in results
        for name, value in fields.child(results, task, "results").items()
        if name.strip() and name not in _NOT_METRICS
    ]
    return judge_metrics(
        source, metrics, rules.thresholds, counts=Counts(tests=samples), requested=_models(config)
    )


def _require_fresh(config: Table) -> None:
    limit = config.get("limit", "nothing")  # absent is not null
    if limit is not None:
        raise NoScoreError("incomplete", f"config.limit: expected null, got {limit}")
    if config.get("use_cache", "") is not None:
        raise wrong("config.use_cache", "null, since the cache is not keyed by model", "a cache")


def _samples(report: Table, results: Table) -> int:
    """Return how many samples ran, having checked each task's number."""
    counts = fields.child(report, "n-samples", "lm-eval")
    groups = fields.child(report, "group_subtasks", "lm-eval")
    leaves = [task for task in results if not groups.get(task)]
    if not leaves or set(leaves) != counts.keys():
        raise NoScoreError(
            "no_tests", f"n-samples: expected one for each of {leaves}, got {sorted(counts)}"
        )
    return sum(
        _task_samples(task, fields.child(counts, task, "n-samples"), results[task])
        for task in leaves
    )


def _task_samples(task: str, counts: Table, result: Mapping[str, object]) -> int:
    original = fields.whole(counts, "original", task)
    effective = fields.whole(counts, "effective", task)
    if "sample_len" in result:
        fields.agree(
            fields.whole(dict(result), "sample_len", task), effective, f"{task}.sample_len"
        )
    if not effective:
        raise NoScoreError("no_tests", f"{task}: expected samples, got none")
    if effective != original:
        raise NoScoreError(
            "incomplete", f"{task}: expected all {original} samples, got {effective}"
        )
    return effective


def _models(config: Table) -> list[str]:
    given = config.get("model_args")
    if isinstance(given, str):  # `pretrained=org/model,dtype=float`, as the command line has it
        pairs = [word.partition("=") for word in given.split(",")]
        given = {key.strip(): value for key, _, value in pairs}
    if given is None:
        return []
    arguments = fields.as_object(given, "config.model_args")
    return [fields.text(arguments, key, "model_args") for key in _MODEL_KEYS if key in arguments]
