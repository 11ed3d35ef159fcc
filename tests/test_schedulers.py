from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.schedulers import INDEXES, SCHEDULERS, array_index, scheduler_claims
from bootstrap.errors import ConfigurationError
from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from pathlib import Path

SLURM: Final = {"SLURM_JOB_ID": "7\n8", "SLURM_RESTART_COUNT": "1", "SLURM_CONF": "/x"}
# Passes only where no variable of a scheduler or CI system is to be seen.
BLIND: Final = """\
import json, os
seen = [name for name in os.environ if name.startswith(("SLURM", "GITHUB", "CI", "ACTIONS"))]
score = {"verdict": "fail" if seen else "pass", "reasons": seen or ["blind"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job."""
    return make_job(tmp_path)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_known_by_its_mark(name: str) -> None:
    """Only the ids that it is listed with are kept, and no token is."""
    scheduler = SCHEDULERS[name]
    environ = {scheduler.mark: "1", scheduler.ids[0]: "2", "SECRET_TOKEN": "3"}
    claims = json.loads(json.dumps(scheduler_claims(environ)))["scheduler"][name]
    assert claims[scheduler.ids[0]] == "2"
    assert set(claims) <= set(scheduler.ids)
    assert scheduler_claims({"PATH": "/bin"}) == {}


@pytest.mark.parametrize("name", INDEXES)
def test_an_array_gives_its_index(name: str) -> None:
    """One whole number, also where two variables agree."""
    assert array_index({name: "12"}) == 12
    assert array_index(dict.fromkeys(INDEXES, "3")) == 3
    for text in ("", "-1", "1.0", " 1", "٣"):
        with pytest.raises(ConfigurationError):
            array_index({name: text})


def test_two_indexes_that_differ_are_refused() -> None:
    """Whichever were taken could be another's job."""
    with pytest.raises(ConfigurationError):
        array_index({INDEXES[0]: "1", INDEXES[1]: "2"})


def test_the_same_job_id_never_meets_its_predecessor(job: Job) -> None:
    """Ids are logged as claims, escaped; a re-run under them is a new generation and attempt."""
    assert job.run(environ=SLURM).returncode == 0
    claims = {"SLURM_JOB_ID": "7\\n8", "SLURM_RESTART_COUNT": "1"}
    assert job.of("model_frozen")["scheduler"] == {"slurm": claims}
    first = job.last
    nothing = job.scorer(text="pass")
    assert job.run(environ=SLURM, scorer=nothing).stdout == "reject: missing_receipt\n"
    assert job.last != first
    assert len({item["generation"] for item in job.log}) == 2
    assert "SLURM" not in json.dumps(job.decision())


def test_bootstrap_logs_the_claims_too(job: Job) -> None:
    """A job image's entrypoint is where a scheduler's job begins."""
    assert job.command("bootstrap", "--model", "m", environ=SLURM).returncode == 0
    assert "slurm" in job.of("model_frozen")["scheduler"]


def test_children_see_nothing_of_the_scheduler(job: Job) -> None:
    """Neither by default, nor when somebody asks for it to be passed on."""
    environ = {**SLURM, "GITHUB_TOKEN": "t", "CI_JOB_TOKEN": "t", "ACTIONS_RUNTIME_TOKEN": "t"}
    assert job.run(environ=environ, scorer=job.scorer(text=BLIND)).stdout == "accept\n"
    for name in environ:
        assert job.run("--scorer-pass-env", name).returncode == 78
