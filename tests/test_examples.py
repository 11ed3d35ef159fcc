"""What each engine does with an exit status, read from the examples' own files."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

yaml = pytest.importorskip("yaml", reason="machine lacks: PyYAML")

EXAMPLES: Final = Path(__file__).parents[1] / "examples"
# Section 7 of the contract: only 75 may be tried again, and 77 is not merely another failure.
FINAL: Final = (1, 2, 70, 78, 128 + 9, 128 + 15)
PARTS: Final = ("attempt", "bootstrap", "agent")


def load(name: str) -> Any:
    """Read a YAML example; a CloudFormation tag stands for its value."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("!Ref", lambda it, node: it.construct_scalar(node))  # type: ignore[attr-defined]
    return yaml.load((EXAMPLES / name).read_bytes(), loader)


def validated(program: str, *words: str) -> None:
    """Run a validator that lies beside this interpreter, or skip and say which is missing."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        pytest.skip(f"machine lacks: {program}")
    done = subprocess.run(
        [path, *words], capture_output=True, check=False, cwd=EXAMPLES, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-workflows", "github/workflow.yml"),
        ("gitlab-ci", "gitlab/.gitlab-ci.yml"),
        ("buildkite", "buildkite/pipeline.yml"),
    ],
)
def test_a_pipeline_is_what_its_engine_takes(schema: str, file: str) -> None:
    """Each is held against the schema that its validator carries."""
    validated("check-jsonschema", "--builtin-schema", f"vendor.{schema}", file)


def test_the_kubernetes_job_is_what_the_server_takes() -> None:
    """No field is unknown to the API."""
    validated("kubernetes-validate", "--strict", "kubernetes/job.yaml")


def test_the_aws_template_is_what_cloudformation_takes() -> None:
    """No property is unknown to the service."""
    validated("cfn-lint", "aws-batch/template.yaml")


def test_the_argo_workflow_is_what_its_models_take() -> None:
    """No field is unknown to the generated models."""
    models = pytest.importorskip("hera.workflows.models", reason="machine lacks: hera")
    document = load("argo/workflow.yaml")
    workflow = models.Workflow.model_validate(document)
    dumped = workflow.model_dump(by_alias=True, exclude_none=True)
    assert dumped["spec"]["templates"][1]["retryStrategy"]["expression"]


def kubernetes_action(job: dict[str, Any], container: str, code: int) -> str:
    """Return what the first matching rule of podFailurePolicy does with a container's exit.

    A pod that no rule matches is counted, and tried again. As the API server, an `In` rule
    may not hold 0, and every name and operator must be one that there is.
    """
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        assert rule["action"] in ("Ignore", "Count", "FailIndex", "FailJob")
        codes = rule.get("onExitCodes")
        if codes is None:
            continue
        assert codes["operator"] in ("In", "NotIn")
        assert codes["operator"] == "NotIn" or 0 not in codes["values"]
        named = codes.get("containerName", container) == container
        if named and (code in codes["values"]) is (codes["operator"] == "In"):
            return str(rule["action"])
    return "Count"


def test_kubernetes_does_with_each_status_what_it_means() -> None:
    """75 is tried again, 77 stops the job, all else ends the index, as every agent's status."""
    job = load("kubernetes/job.yaml")
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["action"] == "Ignore"
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    for container in ("bootstrap", "attempt"):
        assert kubernetes_action(job, container, 75) == "Count"
        assert kubernetes_action(job, container, 77) == "FailJob"
        assert {kubernetes_action(job, container, code) for code in FINAL} == {"FailIndex"}
    agents = {kubernetes_action(job, "agent", code) for code in (*FINAL, 75, 77)}
    assert agents == {"FailIndex"}
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["backoffLimitPerIndex"] >= 1


def test_kubernetes_keeps_the_state_from_the_agent() -> None:
    """The agent's container does not mount what the runner's containers do."""
    pod = load("kubernetes/job.yaml")["spec"]["template"]["spec"]
    containers = [*pod["initContainers"], *pod["containers"]]
    mounts = {one["name"]: {it["name"] for it in one["volumeMounts"]} for one in containers}
    assert set(mounts) == set(PARTS)
    assert "state" in mounts["bootstrap"] & mounts["attempt"]
    assert "state" not in mounts["agent"]
    assert {"name": "state", "emptyDir": {}} in pod["volumes"]
    assert pod["automountServiceAccountToken"] is False


def test_aws_batch_does_with_each_status_what_it_means() -> None:
    """The last rule ends whatever no other matched: without it the service tries again."""
    properties = load("aws-batch/template.yaml")["Resources"]["Attempt"]["Properties"]
    rules = properties["RetryStrategy"]["EvaluateOnExit"]

    def action(code: int) -> str:
        for rule in rules:
            exits = fnmatchcase(str(code), rule.get("OnExitCode", "*"))
            if exits and "OnStatusReason" not in rule:
                return str(rule["Action"]).upper()
        return "RETRY"

    assert action(75) == "RETRY"
    assert {action(code) for code in (*FINAL, 77)} == {"EXIT"}
    assert rules[-1] == {"OnReason": "*", "Action": "EXIT"}


def test_gitlab_and_buildkite_try_75_alone_again() -> None:
    """Neither names another status, nor a failure of another kind."""
    gitlab = load("gitlab/.gitlab-ci.yml")["attempt"]["retry"]
    assert gitlab == {"max": 2, "exit_codes": [75]}
    (step,) = load("buildkite/pipeline.yml")["steps"]
    assert step["retry"]["automatic"] == [{"exit_status": 75, "limit": 2}]
    assert step["retry"]["manual"]["allowed"] is False


def test_argo_tries_75_alone_again() -> None:
    """The expression names the one status."""
    (strategy,) = (
        one["retryStrategy"]
        for one in load("argo/workflow.yaml")["spec"]["templates"]
        if "retryStrategy" in one
    )
    assert strategy["expression"] == "asInt(lastRetry.exitCode) == 75"
    assert strategy["limit"] == "2"


def test_slurm_requeues_75_and_holds_77() -> None:
    """The site's settings name one status each (they are run by test_slurm.py)."""
    text = (EXAMPLES / "slurm/site.conf").read_text()
    settings = dict(re.findall(r"^(\w+)=(\S+)", text, re.MULTILINE))
    assert settings == {"RequeueExit": "75", "RequeueExitHold": "77", "JobRequeue": "0"}


@pytest.mark.parametrize(
    "script", ["slurm/array.sbatch", "slurm/prolog", "github/job-started"], ids=str
)
def test_a_script_fails_with_its_first_failure(script: str) -> None:
    """It parses, and neither an unset variable nor a failed part of a pipe goes unseen."""
    subprocess.run(["bash", "-n", EXAMPLES / script], check=True, timeout=60)
    assert "\nset -euo pipefail\n" in (EXAMPLES / script).read_text()


@pytest.mark.parametrize(
    "script",
    [
        load("gitlab/.gitlab-ci.yml")["attempt"]["script"][0],
        load("buildkite/pipeline.yml")["steps"][0]["command"],
    ],
    ids=["gitlab", "buildkite"],
)
def test_a_pipe_cannot_turn_a_reject_into_a_success(script: str) -> None:
    """`attempt-runner run | tee` is the runner's status."""
    assert script.startswith("set -euo pipefail")


def test_github_runs_its_pipe_in_a_shell_with_pipefail() -> None:
    """A step's default shell lacks it; one that is named `bash` has it."""
    jobs = load("github/workflow.yml")["jobs"]
    piped = [step for step in jobs["attempt"]["steps"] if "| \\" in str(step) or "tee" in str(step)]
    assert piped
    assert all(step["shell"] == "bash" for step in piped)
    assert jobs["merge"]["if"] == "needs.attempt.outputs.verdict == 'accept'"
