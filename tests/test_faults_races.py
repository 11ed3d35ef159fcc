from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.crowds import crowd_many_workspaces, crowd_one_workspace, read_beside_a_writer
from tests.faults.races import JUDGING, both_ways, race_gate, race_run
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Job

pytestmark = pytest.mark.timeout(600)


@needs("git")
@pytest.mark.parametrize("start", [0, 10])
def test_a_run_that_is_lied_to_accepts_only_what_was_scored(tmp_path: Path, start: int) -> None:
    """All files change all the while: an accept of the bytes that were scored, or none."""
    for seed in range(start, start + 10):
        race_run(tmp_path / str(seed), seed)


@needs("git")
def test_a_gate_that_is_lied_to_emits_only_what_was_scored(job: Job) -> None:
    """Whatever changes while it judges, the bytes that it emits are those that were scored."""
    assert job.run("--base", str(job.base), scorer=job.scorer(text=JUDGING)).stdout == "accept\n"
    assert both_ways(race_gate(job, seed=1, rounds=300))


def test_a_crowd_on_one_workspace_takes_turns(job: Job) -> None:
    """Sixteen at once: one at a time or 75, nothing of another's in sight, no gap in the log."""
    assert crowd_one_workspace(job, 16) >= 12


def test_workspaces_do_not_know_each_other(tmp_path: Path) -> None:
    """Sixteen under one state root each have a log and an attempt of their own."""
    assert crowd_many_workspaces(tmp_path, 16) == 16


def test_readers_beside_a_writer_see_whole_lines(job: Job) -> None:
    """`log`, `log --verify` and `show` succeed at any moment of a run."""
    assert read_beside_a_writer(job, 2) > 0
