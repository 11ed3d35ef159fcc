from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from attempt_runner.joblist import listed_job
from attempt_runner.workers import worst
from bootstrap.errors import ConfigurationError
from tests.jobs import BLOCKER, ROOT_COMMAND, Job, clean_environment, make_job, until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def listed(job: Job, name: str, *scorer: str, **more: object) -> dict[str, object]:
    """Return the entry of a job in a list, with the scorer of the tests."""
    line = {
        "workspace": str(job.workspace),
        "prompt": str(job.prompt),
        "diff": str(job.diff),
        "model": [name],
        "scorer": more.get("scorer") or job.scorer(*scorer),
    }
    return {**line, **more}


def make_jobs(directory: Path, count: int) -> list[Job]:
    """Lay out some jobs, each in a directory of its own."""
    places = [directory / f"job{number}" for number in range(count)]
    for place in places:
        place.mkdir()
    return [make_job(place) for place in places]


def words(directory: Path, lines: list[dict[str, object]], *flags: str) -> list[str]:
    """Write a job list; return the words of a `run` with it."""
    (directory / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = ["--state-dir", str(directory / "state"), "--isolation", "none"]
    return [*ROOT_COMMAND, "run", "--job-list", "jobs.jsonl", *common, *flags]


def run(
    directory: Path,
    lines: list[dict[str, object]],
    *flags: str,
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a job list."""
    return subprocess.run(
        words(directory, lines, *flags),
        capture_output=True,
        check=False,
        cwd=directory,
        env=clean_environment() | dict(environ or {}),
        text=True,
        timeout=100,
    )


def test_all_jobs_of_a_list_run_and_the_worst_status_counts(tmp_path: Path) -> None:
    """One line a job, whatever each comes to; a reject outranks a 75."""
    first, second, third = make_jobs(tmp_path, 3)
    unavailable = {"scorer": third.scorer(text="import sys; sys.exit(75)")}
    lines = [
        listed(first, "model-a"),
        listed(second, "model-a", "fail"),
        listed(third, "model-a", **unavailable, **{"scorer-may-be-unavailable": True}),
    ]
    done = run(tmp_path, lines, "--workers", "2")
    assert sorted(done.stdout.splitlines()) == ["0 0 accept", "1 1 reject: verdict", "2 75 -"]
    assert done.returncode == 1
    assert "job 1: " in done.stderr


def test_one_job_of_a_list_is_chosen_by_its_index(tmp_path: Path) -> None:
    """The tables of job.toml may stand in a line; relative paths are the list's."""
    (job,) = make_jobs(tmp_path, 1)
    entry = listed(job, "model-b")
    scorer = {"scorer": entry.pop("scorer")}
    entry["workspace"] = "job0/workspace"
    lines: list[dict[str, object]] = [{"nonsense": 1}, {"job": entry, "scorer": scorer}]
    assert run(tmp_path, lines, "--index", "1").stdout == "accept\n"
    for name in ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX"):
        done = run(tmp_path, lines, "--index", "auto", environ={name: "1"})
        assert (done.returncode, done.stdout) == (0, "accept\n")
    assert run(tmp_path, lines, "--index", "0").returncode == 78
    assert run(tmp_path, lines, "--index", "2").returncode == 78
    assert run(tmp_path, lines, "--index", "auto").returncode == 78
    assert run(tmp_path, lines, "--index", "-1").returncode == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "[]\n",
        '{"workspace": "w", "workspace": "v"}\n',
        '{"workspac": "w"}\n',
        '{"scorer": {"workspace": "w"}}\n',
        '{"workspace": "."}\n',
        "{\n",
    ],
)
def test_a_list_with_a_bad_line_is_refused(tmp_path: Path, text: str) -> None:
    """A line is held to what job.toml is held to, and no jobs are not success."""
    path = tmp_path / "jobs.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError):
        listed_job(path, 0, None)


def test_a_list_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Who can write the list chooses the scorer."""
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"workspace": "w"}\n')
    assert listed_job(path, 0, None).values == {"workspace": "w"}
    path.chmod(0o666)
    with pytest.raises(ConfigurationError):
        listed_job(path, 0, None)


def test_a_signal_stops_and_records_each_job(tmp_path: Path) -> None:
    """What runs is aborted in its log, what has not begun is not started."""
    first, second = make_jobs(tmp_path, 2)
    mark = tmp_path / "mark"
    block = [sys.executable, "-I", str(first.script("block.py", BLOCKER)), str(mark)]
    lines = [listed(first, "model-a", scorer=block), listed(second, "model-a")]
    running = subprocess.Popen(
        words(tmp_path, lines),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment(),
        text=True,
    )
    until(mark.exists)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert (running.returncode, output) == (1, "0 1 reject: attempt_state\n1 75 -\n")
    (log,) = (tmp_path / "state").glob("*/job-log.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "attempt_aborted"


def test_options_of_a_list_that_contradict_each_other_are_bad_usage(tmp_path: Path) -> None:
    """An index without a list, and outputs of one job for many, mean nothing."""
    (job,) = make_jobs(tmp_path, 1)
    assert job.run("--index", "1").returncode == 2
    assert job.run("--workers", "2").returncode == 2
    assert run(tmp_path, [listed(job, "model-a")], "--echo").returncode == 2


def test_the_worst_status_is_the_one_that_nobody_may_overlook() -> None:
    """77 holds the machine; a reject is not given another try for another job's 75."""
    assert worst({0}) == 0
    assert worst({0, 75}) == 75
    assert worst({75, 1}) == 1
    assert worst({1, 2, 78, 70, 77}) == 77
    assert worst({137, 0}) == 1
