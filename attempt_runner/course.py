"""What a job may try, decided before anything starts: its models, and what moves on to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from attempt_runner.resolve import frozen_model
from bootstrap.errors import ConfigurationError, UsageError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.plan import Intent
    from attempt_runner.settings import Job

UNAVAILABLE: Final = "scorer-unavailable"
TIMEOUT: Final = "scorer-timeout"
AGENT: Final = "agent"
CAUSES: Final = (UNAVAILABLE, TIMEOUT, AGENT)
# Their tool runs the patch, which can make it exit 75 and leave no file: not evidence that
# anybody was unavailable, unless the operator says so.
RUNS_PATCH: Final = frozenset({"junit", "ctrf", "tap", "exit-code"})


@dataclass(frozen=True, slots=True)
class Course:
    """What a job may try: its models in order, and the causes that move on to the next."""

    intent: Intent
    models: tuple[str, ...]
    causes: frozenset[str]


def plot_course(intent: Intent, environ: Mapping[str, str]) -> Course:
    """Decide what the job may try. Raises UsageError or ConfigurationError (78).

    With several models a scorer may be unavailable, and a score must name its model, unless
    the job says otherwise.
    """
    job = intent.job
    models = frozen_model(job, environ)
    if len(set(models)) < len(models):
        raise _misused("model", "each model once", ", ".join(models))
    if job.max_attempts < 0:
        raise _misused("max-attempts", "0 or more", str(job.max_attempts))
    models = models[: job.max_attempts or None]
    causes = _causes(job, several=len(models) > 1)
    if len(models) > 1:
        job = replace(
            job,
            scorer_may_be_unavailable=job.scorer_may_be_unavailable or UNAVAILABLE in causes,
            require_served_model=job.require_served_model or not job.served_model_optional,
        )
    return Course(replace(intent, job=job), models, causes)


def _causes(job: Job, *, several: bool) -> frozenset[str]:
    if unknown := set(job.failover_on) - set(CAUSES):
        raise _misused("failover-on", " or ".join(CAUSES), ", ".join(sorted(unknown)))
    if not several or job.score_format not in RUNS_PATCH:
        return frozenset((*job.failover_on, UNAVAILABLE))
    if not job.failover_on:
        raise ConfigurationError(
            f"several models with --score-format {job.score_format}",
            expected="--failover-on, since the patch can make this format's tool exit 75",
            found="none",
            remedy=f"name what moves on to the next model: {', '.join(CAUSES)}",
        )
    return frozenset(job.failover_on)


def _misused(setting: str, expected: str, found: str) -> UsageError:
    return UsageError(f"--{setting}", expected=expected, found=shown(found), remedy="correct it")
