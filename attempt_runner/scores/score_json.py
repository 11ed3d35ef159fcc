"""The native score file: a verdict and its reasons, written by a scorer made for this runner.

In: `{"verdict": "pass" | "fail", "reasons": ["..."]}` and optionally `model_id` (the model
actually served), `nonce`, `attempt_id` (DESIGN section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from attempt_runner.scores import fields
from attempt_runner.scores.rules import bounded
from attempt_runner.scores.score import Score, wrong

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.score import ScoreRules, Source

_KEYS: Final = {"verdict", "reasons", "model_id", "nonce", "attempt_id"}
_WHERE: Final = "score"


def read(source: Source, rules: ScoreRules) -> Score:
    """Return the score of a native file, or raise NoScoreError.

    1. One strict JSON object with no unknown key.
    2. The verdict is exactly `pass` or `fail`; at least one reason, none blank.
    3. A nonce or attempt id that is present is the one of this scoring.

    Not checked here: the model id, which the attempt compares.
    """
    table = fields.load_object(source.data, _WHERE)
    if unknown := sorted(table.keys() - _KEYS):
        raise wrong(_WHERE, f"only the keys {', '.join(sorted(_KEYS))}", unknown)
    verdict = _verdict(table)
    reasons = fields.texts(table, "reasons", _WHERE)
    if not reasons:
        raise wrong("score.reasons", "at least one reason", "none")
    _require_own(table, "nonce", rules.nonce)
    _require_own(table, "attempt_id", rules.attempt_id)
    return Score(
        verdict=verdict,
        answered=(fields.text(table, "model_id", _WHERE),) if "model_id" in table else (),
        reasons=bounded(reasons),
        source_sha256=source.sha256,
    )


def _verdict(table: Table) -> Literal["pass", "fail"]:
    verdict = fields.text(table, "verdict", _WHERE)
    if verdict == "pass":
        return "pass"
    if verdict == "fail":
        return "fail"
    raise wrong("score.verdict", "pass or fail", verdict)


def _require_own(table: Table, key: str, expected: str | None) -> None:
    if key not in table:
        return
    found = fields.text(table, key, _WHERE)
    if expected is not None and found != expected:
        raise wrong(f"score.{key}", "the one of this scoring", found)
