"""What a score is: one frozen object, whatever tool wrote the bytes.

Only `pass` can lead to accept, and only `pass` and `fail` make a receipt. The other three
verdicts say why the file is no score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["pass", "fail", "error", "no_tests", "incomplete"]
Comparison = Literal[">=", "<=", "==", ">", "<"]

MAX_SCORE_BYTES: Final = 16 * 1024 * 1024  # parsed whole: some ten times this in memory
MAX_CAUSE_CHARS: Final = 2000  # one line of decision.json


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests a file holds, recounted from its cases and never taken from a header.

    Of a numeric format `tests` counts samples; they neither pass nor fail, since the
    threshold judges them together. `score-json` and `exit-code` count nothing.
    """

    tests: int = 0
    passed: int = 0
    failed: int = 0
    errored: int = 0
    skipped: int = 0

    @property
    def executed(self) -> int:
        """Tests that ran: a skipped one proves nothing."""
        return self.tests - self.skipped

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.tests + other.tests,
            self.passed + other.passed,
            self.failed + other.failed,
            self.errored + other.errored,
            self.skipped + other.skipped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The one result of reading a scorer's files.

    `value` is the number that decided and `threshold` the demand it was held against, of
    numeric formats only. `requested` holds the model ids that were asked for, `answered`
    those that replied, both as the file spells them. `reasons` keep a receipt's limits, and
    are empty where there is no score: then `cause` says why in one line. All text in here
    is the scorer's: it passes `errors.shown` before a terminal.
    """

    verdict: Verdict
    counts: Counts = Counts()
    value: float | None = None
    threshold: str | None = None
    requested: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    source_sha256: str
    cause: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """Every model id the file names, once, in the order of its appearance."""
        return tuple(dict.fromkeys(self.requested + self.answered))


@dataclass(frozen=True, slots=True)
class Threshold:
    """One demand of the operator's on a numeric score, such as `accuracy>=0.8`."""

    text: str
    metric: str
    comparison: Comparison
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRules:
    """What the operator demands of a score.

    `nonce` and `attempt_id` are those of this scoring: a file that names others is no score.
    Both are None only where there is no attempt to compare with, in the command `score`.
    """

    nonce: str | None
    attempt_id: str | None
    min_tests: int = 1
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One file as the scorer left it. The name is the operator's path, for what it tells."""

    name: str
    data: bytes
    sha256: str


class NoScoreError(Exception):
    """The bytes are no score; `verdict` says which kind of none. Never leaves `read_score`."""

    def __init__(self, verdict: Literal["error", "no_tests", "incomplete"], cause: str) -> None:
        super().__init__(cause[:MAX_CAUSE_CHARS])
        self.verdict: Literal["error", "no_tests", "incomplete"] = verdict
        self.cause = cause[:MAX_CAUSE_CHARS]


def wrong(what: str, expected: str, found: object) -> NoScoreError:
    """Return the error for a file that does not say what its format must say."""
    return NoScoreError("error", f"{what}: expected {expected}, got {found}")
