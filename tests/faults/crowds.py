"""Crowds: many runners on one workspace, many workspaces at once, readers beside a writer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.jobs import Job, make_job

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE: Final = 300  # seconds: what 64 runners take on a busy machine, many times over

# Leaves the diff, and a file of its own that no other runner's agent may ever find.
ALONE: Final = """\
import os, pathlib, sys
others = [name for name in os.listdir() if name.startswith("mine-")]
pathlib.Path("mine-" + os.environ["MODEL_ID"]).touch()
home = pathlib.Path.home()
others += [path.name for path in home.iterdir()]
others += [p.name for p in home.parent.parent.iterdir() if p.name not in ("agent", "scorer")]
pathlib.Path("change.diff").write_text(pathlib.Path(sys.argv[1]).read_text())
pathlib.Path("mine-" + os.environ["MODEL_ID"]).unlink()
sys.exit(bool(others))
"""


def crowd_one_workspace(job: Job, count: int) -> int:
    """Start `count` runners on one workspace, every fourth unwilling to wait; return the accepts.

    Each is accepted or 75, one at a time, with an attempt of its own; the chain has no gap.
    """
    patch = job.script("patch.diff", job.diff.read_text())
    agent = job.agent(ALONE, str(patch))
    runners = []
    for number in range(count):
        wait = ("--wait", "0" if number % 4 == 3 else str(PATIENCE))
        runners.append(job.start(*job.run_words("--agent", agent, *wait, model=f"model-{number}")))
    ends = _ends(runners)
    waited = [end for number, end in enumerate(ends) if number % 4 != 3]
    assert waited == [(0, "accept\n")] * len(waited)
    assert set(ends) <= {(0, "accept\n"), (75, "")}
    accepted = sum(code == 0 for code, _ in ends)
    _check_turns(job, accepted)
    return accepted


def _check_turns(job: Job, accepted: int) -> None:
    records = job.log
    assert [item["seq"] for item in records] == list(range(1, len(records) + 1))
    attempts = [item["attempt_id"] for item in records if "attempt_id" in item]
    turns = [one for one, before in zip(attempts, [None, *attempts], strict=False) if one != before]
    assert len(turns) == len(set(turns)) == accepted, "two attempts at a time"
    models = set()
    for attempt in job.attempts:
        receipt = json.loads((attempt / "receipt.json").read_bytes())
        assert receipt["attempt_id"] == attempt.name
        models.add(receipt["model_id"])
    assert len(models) == len(job.attempts) == accepted
    assert job.command("log", "--verify").stdout == f"verified {len(records)} records\n"


def crowd_many_workspaces(directory: Path, count: int) -> int:
    """Run `count` jobs at once under one state root; each is accepted and has its own log."""
    jobs = []
    for number in range(count):
        place = directory / str(number)
        place.mkdir(parents=True)
        jobs.append(make_job(place))
    root = str(directory / "state")
    # The flag given last counts: all of them share one root.
    runners = [job.start(*_under(root, job.run_words("--agent", job.agent()))) for job in jobs]
    assert _ends(runners) == [(0, "accept\n")] * count
    logs = list((directory / "state").glob("*/job-log.jsonl"))
    assert len(logs) == count
    assert {len(log.read_bytes().splitlines()) for log in logs} == {12}
    return count


def _under(root: str, words: list[str]) -> list[str]:
    return [words[0], "--state-dir", root, *words[1:]]


def read_beside_a_writer(job: Job, runs: int) -> int:
    """Read the log, and gate the last attempt, over and over while jobs write; return how often."""
    assert job.run().stdout == "accept\n"
    reads = 0
    for _ in range(runs):
        writer = job.start(*job.run_words())
        while writer.poll() is None:
            log = job.start("log", "--json")
            verified = job.start("log", "--verify")
            shown = job.start("show", job.last)
            lines, _ = log.communicate(timeout=PATIENCE)
            assert [json.loads(line)["seq"] for line in lines.splitlines()][:1] == [1]
            told = [runner.communicate(timeout=PATIENCE) for runner in (verified, shown)]
            assert (log.returncode, verified.returncode, shown.returncode) == (0, 0, 0), told
            reads += 3
        assert writer.communicate(timeout=PATIENCE)[0] == "accept\n"
        assert job.gate(job.last) == "accept"
    return reads


def _ends(runners: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    outs = [runner.communicate(timeout=PATIENCE)[0] for runner in runners]
    return [(runner.returncode, out) for runner, out in zip(runners, outs, strict=True)]
