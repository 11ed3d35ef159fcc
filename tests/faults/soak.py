"""Everything of docs/reliability.md at every point, for as long as asked.

    python -m tests.faults.soak MINUTES [SEED]

Goes round the kinds in turn until the time is over or every point was struck; prints the
figures. Any promise that is broken ends it with the point, and 1.
"""

from __future__ import annotations

import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.crowds import crowd_many_workspaces, crowd_one_workspace, read_beside_a_writer
from tests.faults.races import JUDGING, race_gate, race_run
from tests.faults.strikes import ERRORS, SIGNALS, Case, MissedError, find_points
from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.faults.points import Point

CROWD: Final = 64
SIZES: Final = range(50, 9000, 150)  # bytes at which every file of a run ends
RACES: Final = 500

Strike = tuple[str, "Callable[[Path], object]"]


def strikes(points: Sequence[Point], chance: random.Random) -> dict[str, list[Strike]]:
    """Return every strike there is by kind, each kind in a random order."""

    def signal(point: Point, name: str) -> Strike:
        return f"{name} at {point}", lambda place: case(place).signal(point, name)

    def fail(point: Point, name: str) -> Strike:
        return f"{name} at {point}", lambda place: case(place).fail(point, name)

    def end(size: int) -> Strike:
        return f"files of {size} bytes", lambda place: case(place).cut_off(size)

    def race(seed: int) -> Strike:
        return f"race {seed}", lambda place: race_run(place, seed)

    kinds = {
        "killed": [signal(point, "KILL") for point in points],
        "stopped": [signal(point, name) for point in points for name in SIGNALS[1:]],
        "failed calls": [fail(p, name) for p in points for name in ERRORS.get(p.call, ())],
        "short writes": [end(size) for size in SIZES],
        "raced runs": [race(seed) for seed in range(RACES)],
    }
    for kind in kinds.values():
        chance.shuffle(kind)
    return kinds


def case(place: Path) -> Case:
    """Return a case with a token that nothing else on the machine carries."""
    return Case(place, str(secrets.randbelow(10**12)))


def strike_one(place: Path, kind: str, strike: Strike) -> str:
    """Strike once; return the kind, or that the point was missed."""
    what, call = strike
    try:
        call(place)
    except MissedError:
        kind += ", missed"
    except Exception:
        sys.stdout.write(f"broken: {kind}: {what}\n")
        raise
    shutil.rmtree(place)
    return kind


def crowds(root: Path) -> Iterator[tuple[str, int]]:
    """Run the crowds and the raced gates once, and yield their figures."""
    yield "runners on one workspace, accepted", crowd_one_workspace(fresh(root, "one"), CROWD)
    yield "workspaces at once", crowd_many_workspaces(root / "many", CROWD)
    yield "reads beside a writer", read_beside_a_writer(fresh(root, "readers"), 5)
    job = fresh(root, "gates")
    assert job.run("--base", str(job.base), scorer=job.scorer(text=JUDGING)).stdout == "accept\n"
    outcomes = race_gate(job, 1, RACES)
    yield "raced gates", len(outcomes)
    yield "raced gates, accepted", outcomes.count("accept")


def fresh(root: Path, name: str) -> Job:
    """Lay out a job of its own."""
    (root / name).mkdir(parents=True)
    return make_job(root / name)


def soak(minutes: float, seed: int) -> int:
    """Strike until the time is over, then print the figures; return the exit status."""
    end = time.monotonic() + 60 * minutes
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        root = Path(name)
        points = find_points(root / "points")
        kinds = strikes(points, random.Random(seed))  # noqa: S311 - an order needs no secret
        whole = {kind: len(items) for kind, items in kinds.items()}
        sys.stdout.write(f"{len(points)} points, seed {seed}\n")
        for kind, count in crowds(root):
            sys.stdout.write(f"{kind}: {count}\n")
            sys.stdout.flush()
        try:
            while time.monotonic() < end and any(kinds.values()):
                for kind in [name for name, items in kinds.items() if items]:
                    done[strike_one(root / "case", kind, kinds[kind].pop())] += 1
        finally:
            for kind, count in whole.items():
                missed = done[f"{kind}, missed"]
                sys.stdout.write(f"{kind}: {done[kind]} of {count}, {missed} missed\n")
    return 0


if __name__ == "__main__":
    sys.exit(soak(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
