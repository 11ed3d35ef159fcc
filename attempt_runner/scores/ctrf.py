"""CTRF, the Common Test Report Format (ctrf.io, schema 0.x and 1.x)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.rules import Case, judge_cases
from attempt_runner.scores.score import wrong

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.rules import Outcome
    from attempt_runner.scores.score import Score, ScoreRules, Source

_OUTCOMES: Final[dict[str, Outcome]] = {
    "passed": "passed",
    "failed": "failed",
    "skipped": "skipped",
    "pending": "skipped",
    "other": "errored",  # the schema's word for a status that it has no word for
}
_MODELS_AT: Final = ("tool", "environment", "summary")  # beside the root, results and tests


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of a CTRF report, or raise NoScoreError.

    1. One strict JSON object that calls itself CTRF, of a major version that is known.
    2. The summary's counts are those of the tests.
    3. A test that passed on a retry failed before: it is failed.
    4. A status `other` beside no failure is an error: nobody knows what it means.
    5. The rules of `judge_cases`.

    `model` in an `extra` object or in a test's `labels` names the model.
    """
    report = fields.load_object(source.data, "ctrf")
    _require_ctrf(report)
    results = fields.child(report, "results", "ctrf")
    tests = fields.objects(results, "tests", "results")
    _require_summary(fields.child(results, "summary", "results"), tests)
    cases = [_case(test) for test in tests]
    return judge_cases(source, cases, answered=_models(report, results, tests), errors_fail=False)


def _require_ctrf(report: Table) -> None:
    if report.get("reportFormat") != "CTRF":
        raise wrong("ctrf.reportFormat", "CTRF", report.get("reportFormat"))
    version = fields.text(report, "specVersion", "ctrf")
    if version.partition(".")[0] not in ("0", "1"):
        raise wrong("ctrf.specVersion", "0.x or 1.x", version)


def _require_summary(summary: Table, tests: list[Table]) -> None:
    where = "summary"
    statuses = [_status(test) for test in tests]
    fields.agree(fields.whole(summary, "tests", where), len(tests), "summary.tests")
    for status in _OUTCOMES:
        fields.agree(
            fields.whole(summary, status, where), statuses.count(status), f"summary.{status}"
        )
    if "flaky" in summary:
        flaky = sum(test.get("flaky") is True for test in tests)
        fields.agree(fields.whole(summary, "flaky", where), flaky, "summary.flaky")


def _status(test: Table) -> str:
    status = fields.text(test, "status", "test")
    if status not in _OUTCOMES:
        raise wrong("test.status", "one that CTRF knows", status)
    return status


def _case(test: Table) -> Case:
    outcome = _OUTCOMES[_status(test)]
    if outcome == "passed" and _failed_before(test):
        outcome = "failed"
    return Case(fields.text(test, "name", "test"), outcome, fields.remark(test, "message", "test"))


def _failed_before(test: Table) -> bool:
    flaky = fields.flag(test, "flaky", "test") if "flaky" in test else False
    retries = fields.whole(test, "retries", "test") if "retries" in test else 0
    attempts = fields.some_objects(test, "retryAttempts", "test")
    return flaky or retries > 0 or any(_status(attempt) != "passed" for attempt in attempts)


def _models(report: Table, results: Table, tests: list[Table]) -> list[str]:
    owners = [report, results, *(results[key] for key in _MODELS_AT if key in results), *tests]
    holders = [
        fields.child(fields.as_object(owner, "ctrf"), key, "ctrf")
        for owner in owners
        for key in ("extra", "labels")
        if key in owner
    ]
    return [fields.text(holder, "model", "extra") for holder in holders if "model" in holder]
