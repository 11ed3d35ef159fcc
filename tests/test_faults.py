"""A fixed sample of what `scripts/soak` does at every point: see docs/reliability.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.strikes import ERRORS, SIGNALS, Case, find_points
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.faults.points import Point

pytestmark = [needs("strace", "git"), pytest.mark.timeout(300)]
KILLS, STOPS, FAILURES = 10, 6, 12


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> tuple[Point, ...]:
    """Find the points of a whole run."""
    return find_points(tmp_path_factory.mktemp("points"))


def nth(points: Sequence[Point], number: int, count: int) -> Point:
    """Return one of `count` points that are spread over all."""
    return points[(2 * number + 1) * len(points) // (2 * count)]


def test_the_points_are_those_of_every_record_and_file(points: tuple[Point, ...]) -> None:
    """The trace finds what it must: each line and head, each file of the attempt, the line told."""
    paths = [point.path.rpartition("/")[2] for point in points]
    assert paths.count("job-log.jsonl") == 3 * 12  # opened, written, synced for each record
    assert {"receipt.json", "decision.json", "patch.diff", "prompt", "score", "score.json"} <= set(
        paths
    )
    assert {"generation.json", ".generation.json.*", ".attempt.json.*"} & set(paths)
    assert paths[-1] == "standard output"


@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_killed_at_a_point(
    points: tuple[Point, ...], number: int, tmp_path: Path, token: str
) -> None:
    """SIGKILL: nothing is accepted by it, nothing is lost, and the next run ends as if alone."""
    Case(tmp_path, token).signal(nth(points, number, KILLS), "KILL")


@pytest.mark.parametrize("number", range(STOPS))
def test_a_run_stopped_at_a_point(
    points: tuple[Point, ...], number: int, tmp_path: Path, token: str
) -> None:
    """SIGTERM and SIGINT: aborted, or decided whole; no agent buys another try."""
    Case(tmp_path, token).signal(nth(points, number, STOPS), SIGNALS[1 + number % 2])


@pytest.mark.parametrize("number", range(FAILURES))
def test_a_call_that_fails_at_a_point(
    points: tuple[Point, ...], number: int, tmp_path: Path, token: str
) -> None:
    """One call fails, each time in another way: the earlier log is intact, nothing accepted."""
    point = nth([item for item in points if item.call in ERRORS], number, FAILURES)
    errors = ERRORS[point.call]
    Case(tmp_path, token).fail(point, errors[number % len(errors)])


@needs("linux")
@pytest.mark.parametrize("size", [100, 1500, 3700])
def test_files_that_end_by_a_short_write(size: int, tmp_path: Path, token: str) -> None:
    """Every file ends at a size: a short write, then an error, and never half a record read."""
    Case(tmp_path, token).cut_off(size)
