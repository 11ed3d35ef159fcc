"""SWE-bench: an instance's report.json, or the report of a whole run."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.rules import Case, judge_cases
from attempt_runner.scores.score import NoScoreError, Source, wrong

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.score import Score, ScoreRules

_JUDGED: Final = ("FAIL_TO_PASS", "PASS_TO_PASS")  # what `resolved` is made of


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of a SWE-bench report, or raise NoScoreError.

    An instance's report:
    1. Exactly one instance; its patch existed and was applied; no infrastructure failure.
    2. At least one FAIL_TO_PASS test: the harness calls empty lists resolved.
    3. `resolved` says what the lists say. A test in both lists failed.

    A run's report, in which an instance counts as one test:
    4. Each list is as long as its header says, and its ids are those submitted.
    5. Every instance of the run was submitted and completed, without error, empty patch or
       infrastructure failure. Empty test lists cannot be seen here: read the instance's
       report as well.

    The model's label is the directory of an instance's report,
    `<run id>/<model>/<instance>/report.json`, or the name of a run's, `<model>.<run id>.json`.
    The harness writes its slashes as two underscores, and so is it given back.
    """
    report = fields.load_object(source.data, "swebench")
    if "total_instances" in report:
        return judge_cases(source, _run_cases(report), requested=_run_model(source))
    if len(report) != 1:
        raise wrong("swebench", "the report of one instance or of a run", f"{len(report)} keys")
    [instance] = report
    cases = _instance_cases(fields.child(report, instance, "swebench"))
    return judge_cases(source, cases, requested=_instance_model(source, instance))


def _instance_cases(report: Table) -> list[Case]:
    resolved = fields.flag(report, "resolved", "instance")
    _require_applied(report)
    status = fields.child(report, "tests_status", "instance")
    cases = [case for name in _JUDGED for case in _list_cases(status, name)]
    if not any(fields.child(status, "FAIL_TO_PASS", "tests_status").values()):
        raise NoScoreError("no_tests", "FAIL_TO_PASS: expected at least one test, got none")
    if resolved and any(case.outcome == "failed" for case in cases):
        raise wrong("instance.resolved", "false, as a test failed", "true")
    if not resolved and all(case.outcome == "passed" for case in cases):
        raise wrong("instance.resolved", "true, as all tests passed", "false")
    return cases


def _require_applied(report: Table) -> None:
    for key, expected in (
        ("patch_is_None", False),
        ("patch_exists", True),
        ("patch_successfully_applied", True),
    ):
        if fields.flag(report, key, "instance") is not expected:
            raise wrong(f"instance.{key}", str(expected).lower(), str(not expected).lower())
    if "infra_failure" in report and fields.flag(report, "infra_failure", "instance"):
        raise wrong("instance.infra_failure", "false", report.get("infra_failure_reason", "true"))


def _list_cases(status: Table, name: str) -> list[Case]:
    lists = fields.child(status, name, "tests_status")
    passed = fields.texts(lists, "success", name)
    failed = fields.texts(lists, "failure", name)
    return [
        *(Case(f"{name} {test}", "passed") for test in passed),
        *(Case(f"{name} {test}", "failed") for test in failed),
    ]


def _instance_model(source: Source, instance: str) -> list[str]:
    parts = PurePosixPath(source.name).parts
    if len(parts) < 3 or parts[-2:] != (instance, "report.json"):  # noqa: PLR2004 - model/instance/report.json
        return []
    return [parts[-3]]


def _ids(report: Table, what: str) -> list[str]:
    found = fields.texts(report, f"{what}_ids", "run")
    if len(set(found)) != len(found):
        raise wrong(f"run.{what}_ids", "each id once", "one repeated")
    if what != "incomplete":  # the one list that has no count of its own
        fields.agree(
            fields.whole(report, f"{what}_instances", "run"), len(found), f"run.{what}_instances"
        )
    return found


def _run_cases(report: Table) -> list[Case]:
    total = fields.whole(report, "total_instances", "run")
    submitted, completed = _ids(report, "submitted"), _ids(report, "completed")
    resolved, unresolved = _ids(report, "resolved"), _ids(report, "unresolved")
    incomplete = _ids(report, "incomplete")
    if incomplete or not total == len(submitted) == len(completed):
        cause = f"run: expected all {total} instances completed, got {len(completed)}"
        raise NoScoreError("incomplete", cause)
    for what in ("error", "empty_patch", "infra_failure"):
        if f"{what}_ids" in report and _ids(report, what):
            raise wrong(f"run.{what}_ids", "none", ", ".join(_ids(report, what)))
    if not set(submitted) == set(completed) == {*resolved, *unresolved}:
        raise wrong("run", "each submitted id completed, and resolved or not", "other ids")
    return [
        *(Case(instance, "passed") for instance in resolved),
        *(Case(instance, "failed") for instance in unresolved),
    ]


def _run_model(source: Source) -> list[str]:
    name = PurePosixPath(source.name).name.removesuffix(".json")
    model, dot, _run_id = name.rpartition(".")
    return [model] if dot and model else []
