"""The lab: the failure is really replayed, and each gate really run over every state."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from attempt_runner.lab import CASES, Event, Job, Row, bound_gate, naive_gate, replay
from bootstrap import bind_receipt
from tests.jobs import ROOT_COMMAND, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

# State, naive gate, bound gate: the table of the post-mortem, written out.
TABLE: Final = [
    ("same diff, new model", "accept", "reject: model_id"),
    ("same diff, new generation", "accept", "reject: workspace_generation"),
    ("same identity, verdict fail", "reject", "reject: verdict"),
    ("same identity, empty reasons", "accept", "reject: reasons"),
    ("diff changed after scoring", "reject", "reject: diff_sha256"),
    ("receipt missing", "reject", "reject: missing_receipt"),
    ("fresh match with reasons", "accept", "accept"),
]


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, tuple[Event, ...], tuple[Row, ...]]:
    """Replay once, and keep the files."""
    directory = tmp_path_factory.mktemp("lab") / "new"
    return directory, *replay(directory)


Played = tuple["Path", tuple[Event, ...], tuple[Row, ...]]


def test_each_row_is_what_both_gates_said(played: Played) -> None:
    """Seven states; in three the naive gate accepts what the bound one refuses."""
    _, _, rows = played
    assert [(row.state, row.naive, row.bound) for row in rows] == TABLE
    assert all(row.as_expected for row in rows)
    assert len(rows) == len(CASES)


def test_the_timeline_ends_in_the_two_verdicts(played: Played) -> None:
    """T4: the naive gate accepts model A's word for model B; T6: the bound one names the field."""
    _, events, _ = played
    assert [event.time for event in events] == [f"T{number}" for number in range(7)]
    assert all(event.as_expected for event in events)
    assert (events[4].seen, events[6].seen) == ("accept", "reject: model_id")


def test_the_files_that_are_kept_say_the_same(played: Played) -> None:
    """Whoever looks at them can run both gates again."""
    directory, _, _ = played
    job = Job(directory / "today")
    assert naive_gate(job) == "accept"
    assert bound_gate(job, "model-b", "gen-today") == "reject: model_id"
    assert bound_gate(job, "model-a", "gen-today") == "accept"
    assert sorted(path.name for path in (directory / "table").iterdir()) == list("1234567")


def test_a_row_that_went_wrong_is_not_as_expected() -> None:
    """The bound gate's word decides; what the naive one says is only shown."""
    assert not Row("state", "accept", "accept", "reject: model_id").as_expected
    assert not Row("state", "accept", "", "accept").as_expected
    assert Row("state", "reject", "accept", "accept").as_expected


def lab(*words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [*ROOT_COMMAND, "lab", *words],
        capture_output=True,
        check=False,
        cwd=directory,
        env=clean_environment() | {"TMPDIR": str(directory)},
        text=True,
        timeout=100,
    )


def test_the_command_prints_a_timeline_and_a_table(tmp_path: Path) -> None:
    """For people by default, and nothing is left behind."""
    done = lab(directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for state, naive, bound in TABLE:
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(state))
        assert line.removeprefix(state).split(None, 1) == [naive, bound]
    assert "T6" in done.stdout
    assert "must:" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_one_json_object_and_keeps_the_files(tmp_path: Path) -> None:
    """--json alone on standard output; --keep makes a new directory and never reuses one."""
    kept = tmp_path / "kept"
    done = lab("--json", "--keep", str(kept), directory=tmp_path)
    assert done.returncode == 0
    document: dict[str, Any] = json.loads(done.stdout)
    assert [(row["state"], row["naive"], row["bound"]) for row in document["decisions"]] == TABLE
    assert str(kept) in done.stderr
    assert (kept / "today" / "receipt.json").exists()
    again = lab("--keep", str(kept), directory=tmp_path)
    assert (again.returncode, again.stdout) == (78, "")


def test_the_bound_gate_is_the_bare_binder(tmp_path: Path) -> None:
    """The lab runs the very file that a job image would carry, in isolated mode."""
    job = Job(tmp_path)
    for path in (job.diff, job.prompt):
        path.write_text("x")
    files = ["--receipt", job.receipt, "--diff", job.diff, "--prompt", job.prompt]
    words = ["verify", *map(str, files), "--model", "m", "--workspace-gen", "g"]
    bare = subprocess.run(
        [sys.executable, "-I", bind_receipt.__file__, *words],
        capture_output=True,
        check=False,
        text=True,
    )
    assert bound_gate(job, "m", "g") == bare.stdout.strip() == "reject: missing_receipt"
