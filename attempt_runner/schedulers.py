"""What a scheduler's variables say of the job: claims for people, never keys.

Whoever starts a process chooses its environment, so none of this is proof, and none of it
names a directory or decides anything: a new process is a new generation, whatever a
scheduler calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping


class Scheduler(NamedTuple):
    """The variable that tells a scheduler, and those with its ids of the job and its restarts."""

    mark: str
    ids: tuple[str, ...]


# Each from the list of variables in the scheduler's own manual.
SCHEDULERS: Final = {
    "slurm": Scheduler(
        "SLURM_JOB_ID",
        ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"),
    ),
    "kubernetes": Scheduler(
        "KUBERNETES_SERVICE_HOST", ("HOSTNAME", "POD_NAME", "POD_UID", "JOB_COMPLETION_INDEX")
    ),
    "github": Scheduler(
        "GITHUB_ACTIONS",
        ("GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB"),
    ),
    "gitlab": Scheduler(
        "GITLAB_CI", ("CI_PROJECT_PATH", "CI_PIPELINE_ID", "CI_JOB_ID", "CI_NODE_INDEX")
    ),
    "buildkite": Scheduler(
        "BUILDKITE",
        (
            "BUILDKITE_BUILD_ID",
            "BUILDKITE_JOB_ID",
            "BUILDKITE_RETRY_COUNT",
            "BUILDKITE_PARALLEL_JOB",
        ),
    ),
    "aws-batch": Scheduler(
        "AWS_BATCH_JOB_ID",
        ("AWS_BATCH_JOB_ID", "AWS_BATCH_JOB_ATTEMPT", "AWS_BATCH_JOB_ARRAY_INDEX"),
    ),
    "argo": Scheduler(
        "ARGO_NODE_ID", ("ARGO_WORKFLOW_NAME", "ARGO_WORKFLOW_UID", "ARGO_NODE_ID", "ARGO_POD_NAME")
    ),
    "jenkins": Scheduler("JENKINS_URL", ("JOB_NAME", "BUILD_NUMBER", "BUILD_TAG")),
}
INDEXES: Final = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX")


def scheduler_claims(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the log's field `scheduler`, or nothing where no scheduler is recognised.

    It maps the name of each one that is to its ids, by variable and escaped: Argo runs on
    Kubernetes, so there may be two.
    """
    found = {
        name: {key: shown(environ[key]) for key in scheduler.ids if key in environ}
        for name, scheduler in SCHEDULERS.items()
        if environ.get(scheduler.mark)
    }
    return {"scheduler": found} if found else {}


def array_index(environ: Mapping[str, str]) -> int:
    """Return the index that an array job gave this process.

    Raises ConfigurationError where there is none, or two that differ.
    """
    given = {environ[name] for name in INDEXES if name in environ}
    text = given.pop() if len(given) == 1 else ""
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(
            "--index auto",
            expected=f"one whole number in {', '.join(INDEXES)}",
            found=", ".join(sorted(map(shown, given))) or shown(text) or "none",
            remedy="run it in an array job, or give --index N",
        )
    return int(text)
