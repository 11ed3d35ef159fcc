"""`score`: read one score file as an attempt would, to try a format without a job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from attempt_runner.cli.options import Json
from attempt_runner.cli.output import complain, write_result
from attempt_runner.cli.tables import pairs
from attempt_runner.scores.formats import FORMATS, TABLE
from attempt_runner.scores.read import check_rules, read_score
from attempt_runner.scores.score import MAX_SCORE_BYTES, Score, ScoreRules
from attempt_runner.scores.thresholds import parse_threshold
from bootstrap.errors import UnsafeFileError, UsageError, shown
from bootstrap.files import READ_FLAGS, read_capped, require_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHOWN: Final = 2000  # characters of one reason on the screen; `--json` has all


def command(
    *,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Score file; exit-code reads none.", show_default=False
        ),
    ] = None,
    score_format: Annotated[
        str, typer.Option("--score-format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.")
    ],
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="METRIC>=N",
            help="Demand on a numeric score, such as accuracy>=0.8. Repeatable.",
        ),
    ] = None,
    exit_code: Annotated[
        int | None,
        typer.Option(
            "--exit-code",
            metavar="N",
            help="Exit code of the scorer, to hold against the file; not held if not given.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Read one score file and print its verdict, counts, numeric score, models and reasons.

    Nothing is run, and no nonce, attempt id or model is compared. Exits 0 for the verdict
    `pass` and 1 for every other, a file that cannot be read included.
    """
    rules = ScoreRules(
        nonce=None, attempt_id=None, thresholds=tuple(map(parse_threshold, threshold or ()))
    )
    check_rules(score_format, rules)
    form = TABLE[score_format]
    if form.module and not file:
        raise UsageError("FILE", expected="a score file", found="none", remedy="name one")
    if form.warning:
        complain(form.warning)
    score = _score(score_format, file, exit_code, rules)
    write_result(_as_json(score) if as_json else _as_text(score))
    return 0 if score.verdict == "pass" else 1


def _score(name: str, file: Path | None, exit_code: int | None, rules: ScoreRules) -> Score:
    try:
        files = [(str(file), _read(file))] if file and TABLE[name].module else []
    except (UnsafeFileError, OSError) as error:
        return Score(verdict="error", source_sha256="", cause=str(error))
    return read_score(name, files, exit_code, rules)


def _read(path: Path) -> bytes:
    # The path is the caller's own, so a link on it is followed.
    fd = os.open(path, READ_FLAGS & ~os.O_NOFOLLOW)
    try:
        require_regular(fd, path, single_link=False)
        return read_capped(fd, MAX_SCORE_BYTES, path)
    finally:
        os.close(fd)


def _as_text(score: Score) -> str:
    counts = score.counts
    value = "none" if score.value is None else f"{score.value} of {score.threshold}"
    head = pairs(
        [
            ("verdict", score.verdict),
            ("tests", str(counts.tests)),
            ("passed", str(counts.passed)),
            ("failed", str(counts.failed)),
            ("errored", str(counts.errored)),
            ("skipped", str(counts.skipped)),
            ("score", value),
            ("models", ", ".join(score.models) or "none named"),
        ]
    )
    lines = (f"reason   {shown(reason, MAX_SHOWN)}\n" for reason in _reasons(score))
    return head + "".join(lines)


def _as_json(score: Score) -> str:
    counts = score.counts
    document = {
        "verdict": score.verdict,
        "tests": counts.tests,
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "skipped": counts.skipped,
        "score": score.value,
        "models": score.models,
        "reasons": _reasons(score),
    }
    return json.dumps(document, indent=2) + "\n"


def _reasons(score: Score) -> Sequence[str]:
    """Return the reasons, or where there is no score why there is none."""
    return score.reasons or (score.cause,)
