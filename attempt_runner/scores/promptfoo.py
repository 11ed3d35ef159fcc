"""promptfoo: the JSON output of `promptfoo eval` (version 3 of its results)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from attempt_runner.scores import fields
from attempt_runner.scores.rules import Case, judge_cases
from attempt_runner.scores.score import NoScoreError, wrong

if TYPE_CHECKING:
    from attempt_runner.scores.fields import Table
    from attempt_runner.scores.rules import Outcome
    from attempt_runner.scores.score import Score, ScoreRules, Source

_OUTCOMES: Final[tuple[Outcome, ...]] = ("passed", "failed", "errored")  # by failureReason


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of promptfoo's output, or raise NoScoreError.

    1. One strict JSON object, results of version 3.
    2. The counts of the whole and of each prompt are those of the results.
    3. At least as many tests ran as the configuration lists: a filter leaves some out.
    4. Each result agrees with itself: success, failure reason and grading.
    5. A success without an assertion did not test anything: it is skipped.
    6. No answer came from promptfoo's cache, whose model was another run's.
    7. An error of a provider beside no failure is an error, not a fail.
    8. The rules of `judge_cases`.

    `provider.id` of a result names the model; its label is the author's own word.
    """
    output = fields.load_object(source.data, "promptfoo")
    report = fields.child(output, "results", "promptfoo")
    if report.get("version") != 3:  # noqa: PLR2004 - the one version that is known
        raise wrong("results.version", "3", report.get("version"))
    results = fields.objects(report, "results", "results")
    _require_counts(report, results)
    _require_whole(fields.child(output, "config", "promptfoo"), results)
    cases = [_case(result) for result in results]
    models = [
        fields.text(fields.child(row, "provider", "result"), "id", "provider") for row in results
    ]
    return judge_cases(source, cases, requested=models, errors_fail=False)


def _reason(result: Table) -> int:
    reason = fields.whole(result, "failureReason", "result")
    if reason >= len(_OUTCOMES):
        raise wrong("result.failureReason", "0, 1 or 2", reason)
    return reason


def _require_counts(report: Table, results: list[Table]) -> None:
    stats = fields.child(report, "stats", "results")
    _agree(stats, ("successes", "failures", "errors"), results, "stats")
    prompts = fields.objects(report, "prompts", "results")
    rows: dict[int, list[Table]] = {index: [] for index in range(len(prompts))}
    for result in results:
        index = fields.whole(result, "promptIdx", "result")
        if index not in rows:
            raise wrong("result.promptIdx", f"less than {len(prompts)}", index)
        rows[index].append(result)
    for index, prompt in enumerate(prompts):
        metrics = fields.child(prompt, "metrics", "prompt")
        _agree(
            metrics, ("testPassCount", "testFailCount", "testErrorCount"), rows[index], "metrics"
        )


def _agree(header: Table, keys: tuple[str, str, str], results: list[Table], where: str) -> None:
    found = Counter(map(_reason, results))
    for reason, key in enumerate(keys):
        fields.agree(fields.whole(header, key, where), found[reason], f"{where}.{key}")


def _require_whole(config: Table, results: list[Table]) -> None:
    listed = config.get("tests")
    ran = {fields.whole(result, "testIdx", "result") for result in results}
    if isinstance(listed, list) and len(ran) < len(listed):
        cause = f"results: expected the {len(listed)} tests that are configured, got {len(ran)}"
        raise NoScoreError("incomplete", cause)


def _case(result: Table) -> Case:
    name = f"test {result.get('testIdx')} prompt {result.get('promptIdx')}"
    reason = _reason(result)
    success = fields.flag(result, "success", "result")
    if success is not (reason == 0):
        raise wrong("result.success", "what failureReason says", success)
    if success:
        return Case(name, "passed" if _is_tested(result) else "skipped")
    return Case(name, _OUTCOMES[reason], fields.remark(result, "error", "result"))


def _is_tested(result: Table) -> bool:
    """Tell whether a success stands on an assertion; refuse one that contradicts itself."""
    if result.get("error"):
        raise wrong("result.error", "none beside a success", "one")
    if fields.child(result, "response", "result").get("cached", False) is not False:
        raise wrong("result.response.cached", "false, run with --no-cache", "true")
    grading = fields.child(result, "gradingResult", "result")
    if fields.flag(grading, "pass", "gradingResult") is not True:
        raise wrong("gradingResult.pass", "true beside a success", "false")
    return bool(fields.some_objects(grading, "componentResults", "gradingResult"))
