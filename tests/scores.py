"""Reading scores in tests: one call with the rules that a test does not care about filled in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.scores.read import read_score
from attempt_runner.scores.score import ScoreRules
from attempt_runner.scores.thresholds import parse_threshold

if TYPE_CHECKING:
    from attempt_runner.scores.score import Score

GOLDEN: Final = Path(__file__).parent / "golden" / "scores"


def rules(*thresholds: str, min_tests: int = 1) -> ScoreRules:
    """Return rules outside an attempt: no nonce and no attempt id to compare."""
    return ScoreRules(
        nonce=None,
        attempt_id=None,
        min_tests=min_tests,
        thresholds=tuple(map(parse_threshold, thresholds)),
    )


def read_bytes(
    name: str,
    data: bytes,
    *thresholds: str,
    exit_code: int | None = None,
    file: str = "score",
    min_tests: int = 1,
) -> Score:
    """Read one file's bytes."""
    demands = rules(*thresholds, min_tests=min_tests)
    return read_score(name, [(file, data)], exit_code, demands)


def golden(file: str) -> bytes:
    """Return the bytes of a golden file, named from the format's directory on."""
    return (GOLDEN / file).read_bytes()
