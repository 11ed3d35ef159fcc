"""Read what a scorer left: format, bytes and exit code to one Score.

Only the reader of the format in use is imported.
"""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol, cast

from attempt_runner.scores.formats import TABLE
from attempt_runner.scores.rules import bounded, distinct, tally
from attempt_runner.scores.score import Counts, NoScoreError, Score, Source, Verdict
from bootstrap.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attempt_runner.scores.formats import Format
    from attempt_runner.scores.score import ScoreRules

EX_TEMPFAIL: Final = 75  # sysexits.h: the scorer says that it is not to be had now
CANNOT_RUN: Final = (126, 127)  # what a shell or env answers for a program it cannot start

# Several files count as their worst: what is no score outweighs a fail, a fail a pass.
_WORST_FIRST: Final[tuple[Verdict, ...]] = ("error", "incomplete", "no_tests", "fail", "pass")


class Reader(Protocol):
    """What each format's module offers."""

    def read(self, source: Source, rules: ScoreRules) -> Score:
        """Return the score of one file, or raise NoScoreError."""


def check_rules(name: str, rules: ScoreRules) -> None:
    """Refuse rules that a format cannot keep, before anything runs.

    Raises UsageError for an unknown format or a rule that does not fit it, and
    ConfigurationError where the format's library is not installed. A numeric format without
    a threshold is not refused here: reading it shows the metrics there are.
    """
    form = _form(name)
    if rules.min_tests < 1:
        raise UsageError(
            "min-tests", expected="at least 1", found=str(rules.min_tests), remedy="raise it"
        )
    if rules.min_tests > 1 and not form.counted:
        raise _misfit("min-tests", name, "a format that counts tests")
    if rules.thresholds and not form.numeric:
        raise _misfit("threshold", name, "a numeric format")
    if form.module:
        _reader(form)


def _form(name: str) -> Format:
    if name not in TABLE:
        raise UsageError(
            "score-format", expected=f"one of {', '.join(TABLE)}", found=name, remedy="name one"
        )
    return TABLE[name]


def _misfit(rule: str, name: str, expected: str) -> UsageError:
    return UsageError(
        rule, expected=expected, found=name, remedy=f"leave --{rule} out, or change the format"
    )


def _reader(form: Format) -> Reader:
    try:
        return cast("Reader", importlib.import_module(f"attempt_runner.scores.{form.module}"))
    except ModuleNotFoundError as error:
        if not form.extra:
            raise
        raise ConfigurationError(
            f"the {form.module} reader",
            expected=f"the optional dependency [{form.extra}]",
            found=f"no module {error.name}",
            remedy=f"install attempt-runner[{form.extra}]",
        ) from error


def read_score(
    name: str, files: Sequence[tuple[str, bytes]], exit_code: int | None, rules: ScoreRules
) -> Score:
    """Return the score of the files that a scorer left. Never raises for what they hold.

    1. At least one file, and each is read by the format's own rules.
    2. Several count together, as their worst.
    3. At least `min_tests` tests ran.
    4. The exit code agrees with the verdict, by the tool's own convention. It is None only
       where no scorer ran, in the command `score`.

    Raises what `check_rules` raises. Not checked: who wrote the files, and the model, which
    `served.served_model` compares.
    """
    check_rules(name, rules)
    form = TABLE[name]
    if not form.module:
        return _exit_code_score(exit_code)
    sources = [Source(path, data, hashlib.sha256(data).hexdigest()) for path, data in files]
    if not sources:
        return _no_score(
            hashlib.sha256(b"").hexdigest(),
            NoScoreError("error", "files: expected a score, got none"),
        )
    reader = _reader(form)
    score = _joined(sources, [_read_one(reader, source, rules) for source in sources])
    return _agreeing(_sufficient(score, form, rules), form, exit_code)


def _read_one(reader: Reader, source: Source, rules: ScoreRules) -> Score:
    try:
        return reader.read(source, rules)
    except NoScoreError as error:
        return _no_score(source.sha256, error)


def _no_score(sha256: str, error: NoScoreError) -> Score:
    return Score(verdict=error.verdict, source_sha256=sha256, cause=error.cause)


def _joined(sources: Sequence[Source], scores: Sequence[Score]) -> Score:
    """Return the scores of several files as one; its digest is that of `sha256sum`'s lines."""
    if len(scores) == 1:
        return scores[0]
    at = min(range(len(scores)), key=lambda index: _WORST_FIRST.index(scores[index].verdict))
    worst = scores[at]
    lines = "".join(f"{source.sha256}  {source.name}\n" for source in sources)
    reasons = [reason for score in scores for reason in score.reasons]
    return replace(
        worst,
        counts=reduce(Counts.__add__, [score.counts for score in scores]),
        requested=distinct([model for score in scores for model in score.requested]),
        answered=distinct([model for score in scores for model in score.answered]),
        reasons=() if worst.cause else bounded(reasons),
        source_sha256=hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest(),
        cause=f"{sources[at].name}: {worst.cause}" if worst.cause else "",
    )


def _sufficient(score: Score, form: Format, rules: ScoreRules) -> Score:
    if score.verdict != "pass" or not form.counted or score.counts.executed >= rules.min_tests:
        return score
    cause = f"tests: expected at least {rules.min_tests} that ran, got {tally(score.counts)}"
    return replace(score, verdict="no_tests", reasons=(), cause=cause)


def _agreeing(score: Score, form: Format, exit_code: int | None) -> Score:
    if exit_code is None or score.verdict not in ("pass", "fail"):
        return score
    agreed = form.passes if score.verdict == "pass" else form.fails
    if exit_code in agreed:
        return score
    cause = f"exit code: expected one that agrees with the file's {score.verdict}, got {exit_code}"
    return replace(score, verdict="error", reasons=(), cause=cause)


def _exit_code_score(exit_code: int | None) -> Score:
    sha256 = hashlib.sha256(b"").hexdigest()
    if exit_code is None or exit_code in (EX_TEMPFAIL, *CANNOT_RUN) or exit_code not in range(128):
        cause = f"exit code: expected 0 to 125, and not {EX_TEMPFAIL}, got {exit_code}"
        return Score(verdict="error", source_sha256=sha256, cause=cause)
    reason = f"the scorer exited {exit_code}; nothing else was looked at"
    return Score(
        verdict="pass" if exit_code == 0 else "fail", reasons=(reason,), source_sha256=sha256
    )
