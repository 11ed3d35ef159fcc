from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.jobs import BLOCKER, Job, make_job, until

if TYPE_CHECKING:
    from pathlib import Path

# Unavailable while the model's name stands in its first argument, then a scorer that names it.
UNAVAILABLE = """\
import json, os, sys
model = os.environ["MODEL_ID"]
if model in sys.argv[1].split(","):
    sys.exit(75)
score = {"verdict": "pass", "reasons": [model], "model_id": model}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
"""
VERDICT = """\
import json, os, sys
score = {"verdict": "fail", "reasons": ["no"], "model_id": os.environ["MODEL_ID"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
sys.exit(75)
"""
MODELS = ("--model", "model-b")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job with two models."""
    return make_job(tmp_path)


def attempts_of(job: Job) -> list[str]:
    """Return the models of the attempts, in order."""
    return [str(item["model_id"]) for item in job.log if item["event"] == "attempt_started"]


def test_the_next_model_is_a_new_generation_and_a_new_attempt(job: Job) -> None:
    """The second model's receipt is its own: id, generation and digest."""
    done = job.run(*MODELS, scorer=job.scorer("model-a", text=UNAVAILABLE))
    assert (done.returncode, done.stdout) == (0, "accept\n")
    first, second = (item for item in job.log if item["event"] == "attempt_started")
    assert (first["model_id"], second["model_id"]) == ("model-a", "model-b")
    assert first["generation"] != second["generation"]
    link = job.of("failed_over")
    assert link["attempt_id"] == second["attempt_id"]
    assert link["from_attempt_id"] == first["attempt_id"]
    assert link["from_generation"] == first["generation"]
    assert (link["from_model_id"], link["cause"]) == ("model-a", "scorer-unavailable")
    assert job.of("attempt_aborted")["attempt_id"] == first["attempt_id"]
    assert job.gate(str(first["attempt_id"])).startswith("reject: ")
    assert job.gate(str(second["attempt_id"])) == "accept"


def test_show_lists_the_attempts_of_a_job(job: Job) -> None:
    """In order, with the cause, and whose receipt was accepted; another job's stay out."""
    assert job.run().returncode == 0
    alone = job.last
    job.run(*MODELS, scorer=job.scorer("model-a", text=UNAVAILABLE))
    listed = json.loads(job.command("show", "--json").stdout)
    first, second = listed["attempts"]
    assert (first["outcome"], first["gave_way"]) == ("attempt_aborted", "scorer-unavailable")
    assert (second["outcome"], second["model_id"]) == ("accepted", "model-b")
    assert listed["accepted"] == second["attempt_id"] == job.last
    assert alone in job.command("show", alone, "--job").stdout
    assert job.last not in job.command("show", alone, "--job").stdout
    assert job.gate(job.last, "--consume") == "accept"
    listed = json.loads(job.command("show", "--job", first["attempt_id"], "--json").stdout)
    assert [one["outcome"] for one in listed["attempts"]] == ["attempt_aborted", "consumed"]


def test_the_last_model_unavailable_too_is_75(job: Job) -> None:
    """Nobody was there to judge: nothing is printed, and the job may start again."""
    done = job.run(*MODELS, scorer=job.scorer("model-a,model-b", text=UNAVAILABLE))
    assert (done.returncode, done.stdout) == (75, "")
    assert attempts_of(job) == ["model-a", "model-b"]
    assert job.events.count("attempt_aborted") == 2


@pytest.mark.parametrize(
    ("scorer", "fields"),
    [
        (VERDICT, "verdict"),
        ("import sys; sys.exit(3)", "missing_receipt"),
        ("import os; os.abort()", "missing_receipt"),
        ("import os, sys; open(os.environ['SCORE_FILE'], 'w'); sys.exit(75)", "missing_receipt"),
        ("import os, sys; os.mkdir(os.environ['SCORE_FILE']); sys.exit(75)", "missing_receipt"),
        (UNAVAILABLE.replace('"model_id": model', '"model_id": "other"'), "served_model"),
        (UNAVAILABLE.replace(', "model_id": model', ""), "served_model"),
    ],
    ids=["fail-75", "exit-3", "abort", "empty-75", "directory-75", "other-model", "no-model"],
)
def test_no_verdict_is_shopped_for(job: Job, scorer: str, fields: str) -> None:
    """A fail, a crash, a mismatch and a 75 beside anything that lies there are final."""
    done = job.run(*MODELS, scorer=job.scorer("nobody", text=scorer))
    assert (done.returncode, done.stdout) == (1, f"reject: {fields}\n")
    assert attempts_of(job) == ["model-a"]
    assert "failed_over" not in job.events


def test_an_agents_own_75_is_a_reject(job: Job) -> None:
    """An agent cannot buy another model by its exit code."""
    done = job.run(*MODELS, "--agent", job.agent("import sys; sys.exit(75)"))
    assert (done.returncode, done.stdout) == (1, "reject: agent\n")
    assert attempts_of(job) == ["model-a"]


def test_a_patch_that_exits_75_in_a_test_tool_is_a_reject(job: Job) -> None:
    """The tool runs the patch: its 75 without a file is the patch's, not the provider's."""
    flags = ("--score-format", "junit", "--failover-on", "scorer-timeout")
    done = job.run(*MODELS, *flags, scorer=job.scorer("all", text="import sys; sys.exit(75)"))
    assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")
    assert attempts_of(job) == ["model-a"]


def test_several_models_need_a_cause_where_the_tool_runs_the_patch(job: Job) -> None:
    """What moves on is then the operator's own word."""
    done = job.run(*MODELS, "--score-format", "junit")
    assert (done.returncode, done.stdout) == (78, "")
    assert "--failover-on" in done.stderr


def test_an_agent_that_fails_moves_on_where_the_operator_says_so(job: Job) -> None:
    """The rejected attempt stays rejected; the next one is another's."""
    job.diff.unlink()
    text = (
        "import pathlib, sys\n"
        "if sys.argv[1] == 'model-a': pathlib.Path('left').touch(); sys.exit(75)\n"
        "pathlib.Path('change.diff').write_text(str(pathlib.Path('left').exists()))\n"
    )
    done = job.run(
        *MODELS,
        *("--failover-on", "agent", "--restore", "--agent", job.agent(text, "{model}")),
        scorer=job.scorer("nobody", text=UNAVAILABLE),
    )
    assert (done.returncode, done.stdout) == (0, "accept\n")
    assert job.of("failed_over")["cause"] == "agent"
    assert job.of("rejected")["fields"] == ["agent"]
    assert job.diff.read_text() == "False"


def test_a_workspace_that_an_attempt_changed_is_refused(job: Job) -> None:
    """The next model never starts on what another left, unless it is put back."""
    job.diff.unlink()
    done = job.run(*MODELS, "--agent", job.agent(), scorer=job.scorer("model-a", text=UNAVAILABLE))
    assert (done.returncode, done.stdout) == (77, "")
    assert "--restore" in done.stderr
    assert attempts_of(job) == ["model-a"]
    assert job.command("attempt", *job.attempt_flags(), "--", *job.scorer()).returncode == 78


def test_a_prompt_that_an_attempt_changed_is_refused(job: Job) -> None:
    """The second model is asked what the first was asked."""
    text = f"import pathlib; pathlib.Path({str(job.prompt)!r}).write_text('Say pass.')\n"
    done = job.run(*MODELS, scorer=job.scorer("model-a", text=text + UNAVAILABLE))
    assert (done.returncode, done.stdout) == (77, "")
    assert attempts_of(job) == ["model-a"]


def test_a_scorer_that_takes_too_long_moves_on_where_the_operator_says_so(job: Job) -> None:
    """A time limit is a cause of its own."""
    text = "import os, time\nif os.environ['MODEL_ID'] == 'model-a': time.sleep(600)\n"
    scorer = job.scorer("nobody", text=text + UNAVAILABLE)
    flags = (*MODELS, "--scorer-timeout", "1")
    assert job.run(*flags, scorer=scorer).stdout == "reject: missing_receipt\n"
    done = job.run(*flags, "--failover-on", "scorer-timeout", scorer=scorer)
    assert (done.returncode, done.stdout) == (0, "accept\n")
    assert job.of("failed_over")["cause"] == "scorer-timeout"


def test_attempts_are_bounded(job: Job) -> None:
    """--max-attempts ends the list of models early."""
    scorer = job.scorer("model-a", text=UNAVAILABLE)
    flags = (*MODELS, "--max-attempts", "1", "--scorer-may-be-unavailable")
    assert job.run(*flags, scorer=scorer).returncode == 75
    assert attempts_of(job) == ["model-a"]


def test_a_served_model_is_optional_by_the_operators_word(job: Job) -> None:
    """Then a score that names none may count."""
    text = UNAVAILABLE.replace(', "model_id": model', "")
    done = job.run(*MODELS, "--served-model-optional", scorer=job.scorer("model-a", text=text))
    assert done.stdout == "accept\n"


@pytest.mark.parametrize(
    "flags",
    [("--model", "model-a"), (*MODELS, "--failover-on", "fail"), ("--max-attempts", "-1")],
    ids=["twice", "verdict", "negative"],
)
def test_a_course_that_makes_no_sense_is_bad_usage(job: Job, flags: tuple[str, ...]) -> None:
    """One model twice, or a verdict as a cause, is refused before anything is locked."""
    assert job.run(*flags).returncode == 2
    assert not job.has_log


def test_a_signal_ends_the_job_and_not_just_the_attempt(job: Job) -> None:
    """Who stops the runner does not want the next model."""
    mark = job.directory / "mark"
    scorer = [sys.executable, "-I", str(job.script("block.py", BLOCKER)), str(mark)]
    running = job.start(*job.run_words(*MODELS, scorer=scorer))
    until(mark.exists)
    running.terminate()
    running.communicate(timeout=60)
    assert running.returncode == 1  # under none the scorer's patch could have sent it
    assert attempts_of(job) == ["model-a"]


def test_the_environment_cannot_change_the_next_model(job: Job) -> None:
    """The list of models is read once."""
    done = job.run(
        *MODELS, scorer=job.scorer("model-a", text=UNAVAILABLE), environ={"MODEL_ID": "model-c"}
    )
    assert done.returncode == 0
    assert attempts_of(job) == ["model-a", "model-b"]
