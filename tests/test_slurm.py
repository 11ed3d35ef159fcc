from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from attempt_runner.collect import tally_log
from tests.jobs import BLOCKER, SCORER, Job, make_job, until
from tests.machine import needs
from tests.slurm.cluster import Cluster, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs("slurm", "root"), pytest.mark.timeout(400)]

SCRIPT: Final = Path(__file__).parents[1] / "examples/slurm/array.sbatch"
# Unavailable the first time, as its second argument does not exist yet.
ONCE: Final = """\
import pathlib, sys
mark = pathlib.Path(sys.argv[2])
if not mark.exists():
    mark.touch()
    sys.exit(75)
"""
SUPERVISED: Final = """\
#!/usr/bin/env bash
exec {python} -I -m attempt_runner bootstrap --workspace {workspace} --state-dir {state} \\
    --model m -- bash -c 'kill -TERM $$'
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Cluster]:
    """Run a Slurm for one test."""
    with running(tmp_path / "slurm") as cluster:
        yield cluster


class Array:
    """A job list below a directory, submitted as an array of the example's script."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory = directory
        self.cluster = cluster
        self.jobs: list[Job] = []
        self.lines: list[dict[str, object]] = []

    def add(self, *scorer: str, text: str = SCORER, **more: object) -> Job:
        """Add a job with a scorer in Python."""
        place = self.directory / f"job{len(self.jobs)}"
        place.mkdir()
        job = make_job(place)
        paths = {name: str(getattr(job, name)) for name in ("workspace", "prompt", "diff")}
        line = {**paths, "model": "m", "scorer": job.scorer(*scorer, text=text)}
        self.lines.append({**line, **more})
        self.jobs.append(job)
        return job

    def submit(self, *flags: str) -> str:
        """Submit all jobs as one array."""
        jobs = self.directory / "jobs.jsonl"
        jobs.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        runner = self.directory / "attempt-runner"
        runner.write_text(f'#!/bin/sh\nexec {sys.executable} -I -m attempt_runner "$@"\n')
        runner.chmod(0o755)
        return self.cluster.submit(
            SCRIPT,
            *("--array", f"0-{len(self.jobs) - 1}", *flags),
            ATTEMPT_RUNNER=str(runner),
            JOB_LIST=str(jobs),
            STATE=str(self.directory / "state"),
            ISOLATION="none",
        )

    def log(self, job: Job) -> list[dict[str, Any]]:
        """Return the records of one job's workspace."""
        (folder,) = self.logs(job)
        return [json.loads(line) for line in (folder / "job-log.jsonl").read_text().splitlines()]

    def logs(self, job: Job | None = None) -> list[Path]:
        """Return the state folders of the jobs that have a log, or of one job."""
        found = sorted(path.parent for path in (self.directory / "state").glob("*/job-log.jsonl"))
        return [
            folder
            for folder in found
            if job is None or self.workspace_of(folder) == str(job.workspace)
        ]

    @staticmethod
    def workspace_of(folder: Path) -> str:
        """Return the workspace that a state folder belongs to."""
        started = next(iter((folder / "attempts").glob("*/attempt.json")), None)
        return str(json.loads(started.read_text())["workspace"]) if started else ""


@pytest.fixture
def array(tmp_path: Path, slurm: Cluster) -> Array:
    """Return an empty array."""
    return Array(tmp_path, slurm)


def events(log: list[dict[str, Any]]) -> list[str]:
    """Return the events of a log that open and close something."""
    known = ("generation_minted", "accepted", "rejected", "attempt_aborted")
    return [record["event"] for record in log if record["event"] in known]


def processes_of(place: Path) -> list[str]:
    """Return the processes whose command line names a path below a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if os.fsencode(place) in line and entry.parent.name != str(os.getpid()):
            found.append(line.decode(errors="replace"))
    return [line for line in found if "slurm" not in line.split("\0")[0]]


def test_the_scheduler_does_with_each_status_what_it_means(array: Array, slurm: Cluster) -> None:
    """Accept completes, 75 is requeued as a new attempt, 77 is held, the rest fails for good."""
    array.add("pass")
    array.add("fail")
    array.add(model=["m", "m"])
    array.add("pass", str(array.directory / "mark"), text=ONCE + SCORER)
    array.lines[-1]["scorer-may-be-unavailable"] = True
    held = array.add("pass")
    array.lines[-1]["score-path"] = ["out/score"]
    (held.workspace / "out").symlink_to("/")
    array.add(nonsense=1)
    job = array.submit()

    def ended(tasks: dict[int, dict[str, str]]) -> bool:
        final = ("COMPLETED", "FAILED", "SPECIAL_EXIT")
        return len(tasks) == len(array.jobs) and all(t["JobState"] in final for t in tasks.values())

    slurm.await_tasks(job, ended)
    tasks = slurm.tasks(job)
    assert {index: (one["JobState"], one["ExitCode"]) for index, one in tasks.items()} == {
        0: ("COMPLETED", "0:0"),
        1: ("FAILED", "1:0"),
        2: ("FAILED", "2:0"),
        3: ("COMPLETED", "0:0"),
        4: ("SPECIAL_EXIT", "77:0"),
        5: ("FAILED", "78:0"),
    }
    assert [tasks[index]["Restarts"] for index in (0, 1, 2, 3, 5)] == list("00010")
    log = array.log(array.jobs[3])
    assert events(log) == ["generation_minted", "attempt_aborted", "generation_minted", "accepted"]
    for name in ("generation", "attempt_id"):
        assert len({item[name] for item in log if name in item}) == 2
    claims = [item["scheduler"]["slurm"] for item in log if item["event"] == "model_frozen"]
    assert claims[0]["SLURM_JOB_ID"] == claims[1]["SLURM_JOB_ID"]
    assert claims[1]["SLURM_RESTART_COUNT"] == "1"


def test_a_supervised_command_that_a_signal_ends_is_final(tmp_path: Path, slurm: Cluster) -> None:
    """Its 143 is the command's own, and nothing that is requeued."""
    job = make_job(tmp_path)
    script = job.script(
        "supervised",
        SUPERVISED.format(python=sys.executable, workspace=job.workspace, state=job.state_root),
    )
    number = slurm.submit(script, "--array", "0")
    slurm.await_tasks(number, lambda tasks: tasks[0]["JobState"] == "FAILED")
    task = slurm.tasks(number)[0]
    assert (task["ExitCode"], task["Restarts"]) == ("143:0", "0")


def test_scancel_in_the_middle_leaves_an_aborted_attempt(array: Array, slurm: Cluster) -> None:
    """No accept, no process, and the log says that the attempt was given up."""
    mark = array.directory / "mark"
    job = array.add("pass")
    array.lines[-1]["agent"] = job.agent(BLOCKER, str(mark))
    number = array.submit()
    until(mark.exists)
    slurm.ask("scancel", number)
    until(lambda: events(array.log(job))[-1] == "attempt_aborted")
    slurm.await_tasks(number, lambda tasks: tasks[0]["JobState"] != "RUNNING")
    assert "accepted" not in events(array.log(job))
    until(lambda: not processes_of(array.directory / "job0"))


def test_a_failed_node_leaves_nothing_that_counts(array: Array, slurm: Cluster) -> None:
    """The next run of the same job closes what the killed one left, and is another attempt."""
    mark = array.directory / "mark"
    text = f"import pathlib\nif not pathlib.Path({str(mark)!r}).exists():\n"
    blocker = "".join(f"    {line}\n" for line in BLOCKER.splitlines())
    job = array.add("pass", str(mark), text=text + blocker + SCORER)
    number = array.submit("--requeue")
    until(mark.exists)
    slurm.kill("slurmd")
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        command = line.read_bytes().split(b"\0")
        if b"attempt_runner" in command and os.fsencode(array.directory) in b"\0".join(command):
            os.kill(int(line.parent.name), 9)  # the machine's power went, the runner's with it
    slurm.start("slurmd")
    slurm.await_idle()
    slurm.ask("scontrol", "requeue", number, check=False)
    until(lambda: events(array.log(job)).count("generation_minted") == 2)
    until(lambda: events(array.log(job))[-1] == "accepted")
    assert events(array.log(job)) == [
        "generation_minted",
        "attempt_aborted",
        "generation_minted",
        "accepted",
    ]
    assert len({item["attempt_id"] for item in array.log(job) if "attempt_id" in item}) == 2


def test_two_hundred_jobs_agree_with_the_schedulers_record(array: Array, slurm: Cluster) -> None:
    """Every chain is whole, and what was accepted is what Slurm calls completed."""
    for number in range(200):
        array.add("fail" if number % 7 == 0 else "pass")
    job = array.submit()
    final = ("COMPLETED", "FAILED")

    def ended(tasks: dict[int, dict[str, str]]) -> bool:
        return len(tasks) == 200 and all(one["JobState"] in final for one in tasks.values())

    slurm.await_tasks(job, ended)
    states = [one["JobState"] for one in slurm.tasks(job).values()]
    tallies = [tally_log(folder) for folder in array.logs()]
    assert not any(tally.broken for tally in tallies)
    assert sum(tally.accepted for tally in tallies) == states.count("COMPLETED") == 171
    assert sum(tally.rejected for tally in tallies) == states.count("FAILED") == 29
