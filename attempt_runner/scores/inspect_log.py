"""Inspect: an evaluation log, as `.json` or as a `.eval` archive (log version 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.score import Counts, NoScoreError, wrong
from attempt_runner.scores.thresholds import Metric, judge_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.score import Score, ScoreRules, Source

_ZIP: Final = b"PK\x03\x04"


def read(source: Source, rules: ScoreRules) -> Score:
    """Return the score of a log, or raise NoScoreError.

    1. A log of version 2 whose status is success, without error, not invalidated.
    2. It ran, completed and holds every sample of its data set times its epochs: neither
       limited, nor cut short, nor a sample twice.
    3. Every sample ended without error and was scored.
    4. At least one scorer, each with metrics, that left no sample unscored.
    5. The rules of `judge_metrics`. A metric answers to its own name, and with its scorer's
       or the task's before it.

    `eval.model` is the model asked for, each sample's `output.model` the one that answered.
    """
    documents = _documents(source.data)
    header = next(documents)
    _require_success(header)
    evaluation = fields.child(header, "eval", "log")
    results = fields.child(header, "results", "log")
    total = _planned(evaluation, results)
    metrics = _metrics(evaluation, results)
    answered = _answered(documents, total)
    return judge_metrics(
        source,
        metrics,
        rules.thresholds,
        counts=Counts(tests=total),
        requested=[fields.text(evaluation, "model", "eval")],
        answered=answered,
    )


def _documents(data: bytes) -> Iterator[Table]:
    """Return the log's header and then its samples."""
    if not data.startswith(_ZIP):
        log = fields.load_object(data, "log")
        return iter([log, *fields.some_objects(log, "samples", "log")])
    try:
        from attempt_runner.scores import eval_archive  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        install = "Zstandard; install attempt-runner[inspect]"
        raise wrong("eval", install, f"no module {error.name}") from error
    return eval_archive.documents(data)


def _require_success(header: Table) -> None:
    if header.get("version") != 2:  # noqa: PLR2004 - the one version that is known
        raise wrong("log.version", "2", header.get("version"))
    status = fields.text(header, "status", "log")
    if status in ("started", "cancelled"):
        raise NoScoreError("incomplete", f"log.status: expected success, got {status}")
    if status != "success":
        raise wrong("log.status", "success", status)
    if header.get("error") is not None:
        raise wrong("log.error", "none", fields.kind_of(header["error"]))
    if header.get("invalidated", False) is not False:
        raise wrong("log.invalidated", "false", header["invalidated"])


def _planned(evaluation: Table, results: Table) -> int:
    """Return the number of samples, having seen that none was left out."""
    samples = fields.whole(fields.child(evaluation, "dataset", "eval"), "samples", "dataset")
    config = fields.child(evaluation, "config", "eval")
    epochs = 1 if config.get("epochs") is None else fields.whole(config, "epochs", "config")
    planned = samples * epochs
    if not planned:
        raise NoScoreError("no_tests", "eval.dataset: expected samples, got none")
    for key in ("total_samples", "completed_samples"):
        if fields.whole(results, key, "results") != planned:
            raise NoScoreError(
                "incomplete", f"results.{key}: expected {planned}, got {results[key]}"
            )
    return planned


def _metrics(evaluation: Table, results: Table) -> list[Metric]:
    task = fields.text(evaluation, "task", "eval")
    scores = fields.objects(results, "scores", "results")
    if not scores:
        raise NoScoreError("incomplete", "results.scores: expected a scorer's, got none")
    return [metric for score in scores for metric in _metrics_of(score, task)]


def _metrics_of(score: Table, task: str) -> list[Metric]:
    name = fields.text(score, "name", "score")
    if "unscored_samples" in score and fields.whole(score, "unscored_samples", name):
        raise NoScoreError("incomplete", f"{name}: expected each sample scored, got fewer")
    metrics = fields.child(score, "metrics", name)
    if not metrics:
        raise NoScoreError("incomplete", f"{name}.metrics: expected at least one, got none")
    owners = (name, task, f"{task}/{name}")
    return [Metric(key, owners, fields.child(metrics, key, name).get("value")) for key in metrics]


def _answered(samples: Iterator[Table], total: int) -> list[str]:
    """Return the models that answered, having recounted and checked the samples."""
    seen: set[tuple[str, int]] = set()
    models: dict[str, None] = {}  # in order, once each: there may be thousands of samples
    for sample in samples:
        key = (repr(sample.get("id")), fields.whole(sample, "epoch", "sample"))
        if key in seen:
            raise wrong("samples", "each once", f"{key[0][:100]} twice")
        seen.add(key)
        _require_scored(sample)
        if model := fields.remark(fields.child(sample, "output", "sample"), "model", "output"):
            models[model] = None
    if len(seen) != total:
        raise NoScoreError("incomplete", f"samples: expected {total}, got {len(seen)}")
    return list(models)


def _require_scored(sample: Table) -> None:
    if sample.get("error") is not None:
        raise NoScoreError("incomplete", "sample.error: expected none, got one")
    if not fields.child(sample, "scores", "sample"):
        raise NoScoreError("incomplete", "sample.scores: expected at least one, got none")
