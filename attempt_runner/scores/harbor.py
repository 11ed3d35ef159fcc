"""Harbor: a trial's result.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attempt_runner.scores import fields
from attempt_runner.scores.score import Counts, NoScoreError, wrong
from attempt_runner.scores.thresholds import Metric, judge_metrics

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.score import Score, ScoreRules, Source

_WHERE = "trial"


def read(source: Source, rules: ScoreRules) -> Score:
    """Return the score of a trial, or raise NoScoreError.

    1. One strict JSON object of schema 1; reports from before the schema had a number do.
    2. The trial finished, its verifier was on, and neither it nor a step raised an
       exception: a reward beside one was not earned by a whole run.
    3. Harbor itself does not call the reward invalid.
    4. The rules of `judge_metrics`, over `reward` and whatever else the verifier wrote.

    The model is `agent_info.model_info`, as `provider/name`.
    """
    trial = fields.load_object(source.data, _WHERE)
    if trial.get("schema_version", 1) != 1:
        raise wrong("trial.schema_version", "1", trial.get("schema_version"))
    task = fields.text(trial, "task_name", _WHERE)
    _require_whole(trial)
    rewards = fields.child(
        fields.child(trial, "verifier_result", _WHERE), "rewards", "verifier_result"
    )
    metrics = [Metric(name, (task,), value) for name, value in rewards.items()]
    return judge_metrics(
        source, metrics, rules.thresholds, counts=Counts(tests=1), requested=_models(trial)
    )


def _require_whole(trial: Table) -> None:
    for part in (trial, *fields.some_objects(trial, "step_results", _WHERE)):
        if part.get("exception_info", {}) is not None:  # absent is not null
            info = fields.child(part, "exception_info", _WHERE)
            raise wrong("trial.exception_info", "null", info.get("exception_type"))
    if trial.get("finished_at") is None:
        raise NoScoreError("incomplete", "trial.finished_at: expected a time, got none")
    if trial.get("reward_valid", True) is not True:
        raise wrong("trial.reward_valid", "true", trial["reward_valid"])
    verifier = fields.child(fields.child(trial, "config", _WHERE), "verifier", "config")
    if fields.flag(verifier, "disable", "config.verifier"):
        raise wrong("config.verifier.disable", "false", "true")


def _models(trial: Table) -> list[str]:
    info = fields.child(trial, "agent_info", _WHERE).get("model_info")
    if info is None:
        return []
    model = fields.as_object(info, "model_info")
    name = fields.text(model, "name", "model_info")
    if model.get("provider") is None:
        return [name]
    return [f"{fields.text(model, 'provider', 'model_info')}/{name}"]
