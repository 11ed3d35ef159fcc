"""SARIF 2.1.0, as linters and static analysers write it (OASIS, sarif-v2.1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.rules import Case, count, judge_cases
from attempt_runner.scores.score import NoScoreError, wrong

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.rules import Outcome
    from attempt_runner.scores.score import Score, ScoreRules, Source

# Section 3.27.9, where `fail` is the default. What is open or needs a review is not settled.
_KINDS: Final[dict[object, Outcome]] = {
    "fail": "failed",
    "open": "failed",
    "review": "failed",
    "pass": "passed",
    "informational": "skipped",
    "notApplicable": "skipped",
}


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of a SARIF log, or raise NoScoreError.

    1. One strict JSON object of version 2.1.0 with at least one run; each run has results,
       be it an empty list.
    2. Every invocation says that it succeeded, and notes no error (sections 3.20.14, 3.58.6).
    3. Every result counts, of any level: a note too, unless it is suppressed or gone since
       the baseline.
    4. A run without results says nothing, for a linter over an empty folder writes the same,
       unless an invocation says that it succeeded. Each of these counts as one passed test.
    5. The rules of `judge_cases`.

    SARIF names no model.
    """
    log = fields.load_object(source.data, "sarif")
    if log.get("version") != "2.1.0":
        raise wrong("sarif.version", "2.1.0", log.get("version"))
    runs = fields.objects(log, "runs", "sarif")
    if not runs:
        raise NoScoreError("no_tests", "sarif.runs: expected at least one, got none")
    by_run = [_run_cases(run) for run in runs]
    if any(not count(cases).executed for cases in by_run):
        cause = "sarif: expected results, or an invocation that succeeded, in each run, got neither"
        raise NoScoreError("no_tests", cause)
    return judge_cases(source, [case for cases in by_run for case in cases])


def _run_cases(run: Table) -> list[Case]:
    name = fields.text(
        fields.child(fields.child(run, "tool", "run"), "driver", "tool"), "name", "driver"
    )
    results = fields.objects(run, "results", "run")
    invocations = fields.some_objects(run, "invocations", "run")
    for invocation in invocations:
        _require_success(invocation)
    return [*(Case(name, "passed") for _ in invocations), *map(_case, results)]


def _require_success(invocation: Table) -> None:
    if fields.flag(invocation, "executionSuccessful", "invocation") is not True:
        raise wrong("invocation.executionSuccessful", "true", "false")
    for key in ("toolExecutionNotifications", "toolConfigurationNotifications"):
        for note in fields.some_objects(invocation, key, "invocation"):
            if note.get("level", "warning") not in ("none", "note", "warning"):
                raise wrong(f"invocation.{key}", "no error", note["level"])


def _case(result: Table) -> Case:
    kind = result.get("kind", "fail")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong("result.kind", "one that SARIF knows", kind)
    outcome = "skipped" if _is_waived(result) else _KINDS[kind]
    rule = fields.remark(result, "ruleId", "result") or "a rule without an id"
    return Case(f"{rule}{_place(result)}", outcome, _message(result))


def _is_waived(result: Table) -> bool:
    given = fields.some_objects(result, "suppressions", "result")
    # Section 3.35.3: one that is under review or rejected suppresses nothing.
    accepted = bool(given) and all(one.get("status", "accepted") == "accepted" for one in given)
    return accepted or result.get("baselineState") == "absent"


def _message(result: Table) -> str:
    return fields.remark(fields.child(result, "message", "result"), "text", "message")


def _place(result: Table) -> str:
    """Return where a result points, as ` in FILE:LINE`, as far as it tells."""
    for location in fields.some_objects(result, "locations", "result"):
        physical = location.get("physicalLocation")
        if isinstance(physical, dict):
            artifact, region = physical.get("artifactLocation"), physical.get("region")
            uri = artifact.get("uri") if isinstance(artifact, dict) else None
            line = region.get("startLine") if isinstance(region, dict) else None
            return f" in {uri}:{line}"
    return ""
