"""JUnit XML, as pytest, Maven, Gradle, Jest, GoogleTest and CTest write it.

There is no standard. What is read is what these tools agree on (testmoapp/junitxml lists
them); an element or status that none of them writes is refused, since an unknown one could
mean a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import ParseError

from defusedxml.ElementTree import DefusedXMLParser

from attempt_runner.scores.fields import as_text
from attempt_runner.scores.rules import Case, judge_cases
from attempt_runner.scores.score import wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.scores.rules import Outcome
    from attempt_runner.scores.score import Score, ScoreRules, Source

MAX_DEPTH: Final = 32  # suites nest a few levels; nothing else nests
MAX_MESSAGE: Final = 8192  # characters: a reason holds half of it

_COUNT: Final = re.compile(r"[0-9]{1,9}")
_SEVERITY: Final[list[Outcome]] = ["passed", "skipped", "errored", "failed"]
_FAILED: Final = {"failure", "rerunFailure", "flakyFailure"}
_ERRORED: Final = {"error", "rerunError", "flakyError"}
_PROBLEMS: Final = _FAILED | _ERRORED
_OUTPUT: Final = {"system-out", "system-err", "properties", "property", "stackTrace"}
_IN_SUITE: Final = _OUTPUT | {"testsuite", "testcase"}
_CHILDREN: Final[dict[str, set[str]]] = {
    "": {"testsuites", "testsuite"},
    "testsuites": _IN_SUITE,
    "testsuite": _IN_SUITE,
    "testcase": _OUTPUT | _PROBLEMS | {"skipped"},
}

_STATUSES: Final[dict[str, Outcome]] = {
    "run": "passed",
    "completed": "passed",
    "passed": "passed",
    "success": "passed",
    "fail": "failed",
    "failed": "failed",
    "failure": "failed",
    "error": "errored",
    "skipped": "skipped",
    "notrun": "skipped",
    "disabled": "skipped",
    "ignored": "skipped",
    "suppressed": "skipped",
}


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of a JUnit file, or raise NoScoreError.

    1. Well-formed XML without a document type, of known elements and statuses.
    2. Every suite counts its tests and failures, and every header's counts are those of the
       cases beneath it. A tool may count a test twice that failed (pytest does for an error
       in teardown), never one that did not.
    3. The rules of `judge_cases`; a case that failed and was rerun to success is failed.

    Properties named `model`, of a suite or a case, name the model.
    """
    target = _Target()
    parser = DefusedXMLParser(target=target, forbid_dtd=True)
    try:
        parser.feed(source.data)
        parser.close()
    except (ParseError, ValueError, LookupError) as error:  # DefusedXmlException is a ValueError
        raise wrong("junit", "well-formed XML without a document type", error) from error
    return judge_cases(source, target.cases, answered=target.models)


@dataclass(slots=True)
class _Tally:
    """What lies beneath one open suite, and what its header says of it."""

    header: Mapping[str, str]
    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    problems: int = 0

    def add(self, other: _Tally) -> None:
        self.tests += other.tests
        self.failures += other.failures
        self.errors += other.errors
        self.skipped += other.skipped
        self.problems += other.problems

    def require_honest(self, tag: str) -> None:
        if tag == "testsuite" and not {"tests", "failures"} <= self.header.keys():
            raise wrong("junit: testsuite", "the counts of tests and failures", "none of one")
        self._require("tests", self.tests, ["tests"])
        self._require("failures", self.failures, ["failures"])
        self._require("errors", self.errors, ["errors"])
        self._require("skipped", self.skipped, ["skipped", "disabled", "ignored"])

    def _require(self, what: str, found: int, names: list[str]) -> None:
        told = [self.header[name] for name in names if name in self.header]
        if not all(_COUNT.fullmatch(text) for text in told):
            raise wrong(f"junit: {what}", "a count", told)
        if told and abs(sum(map(int, told)) - found) > self.problems:
            raise wrong(f"junit: {what}", f"{found}, as the cases tell", ", ".join(told))


@dataclass(slots=True)
class _OpenCase:
    name: str
    status: Outcome
    failures: int = 0
    errors: int = 0
    skipped: bool = False
    message: str = ""

    @property
    def outcome(self) -> Outcome:
        if self.failures:
            return "failed"
        if self.errors:
            return "errored"
        return "skipped" if self.skipped and self.status == "passed" else self.status

    def tally(self) -> _Tally:
        outcome = self.outcome
        return _Tally(
            header={},
            tests=1,
            failures=int(outcome == "failed"),
            errors=int(self.errors > 0 or outcome == "errored"),
            skipped=int(self.skipped or outcome == "skipped"),
            problems=max(self.failures + self.errors, int(outcome in ("failed", "errored"))),
        )


class _Target:
    """What the parser calls: it keeps the open elements, never a tree."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.models: list[str] = []
        self._open: list[str] = [""]
        self._suites: list[_Tally] = []
        self._case: list[_OpenCase] = []  # one at most: a case holds no case

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag not in _CHILDREN.get(self._open[-1], _OUTPUT):
            raise wrong("junit", "an element that JUnit has there", f"<{tag[:100]}>")
        if len(self._open) > MAX_DEPTH:
            raise wrong("junit", f"at most {MAX_DEPTH} levels of elements", "more")
        self._open.append(tag)
        if tag in ("testsuites", "testsuite"):
            self._suites.append(_Tally(header=dict(attributes)))
        elif tag == "testcase":
            self._case.append(_OpenCase(_name_of(attributes), _status_of(attributes)))
        elif tag == "property":
            self._property(attributes)
        elif self._case:
            _note(self._case[0], tag, attributes)

    def data(self, text: str) -> None:
        if self._open[-1] in _PROBLEMS and len(self._case[0].message) < MAX_MESSAGE:
            self._case[0].message += text

    def end(self, tag: str) -> None:
        self._open.pop()
        if tag in ("testsuites", "testsuite"):
            self._close_suite(tag)
        elif tag == "testcase":
            self._close_case()

    def close(self) -> None:
        """Satisfy the parser's protocol: nothing is left open when it calls."""

    def _property(self, attributes: Mapping[str, str]) -> None:
        if attributes.get("name") == "model":
            self.models.append(as_text(attributes.get("value"), "junit: property model"))

    def _close_suite(self, tag: str) -> None:
        suite = self._suites.pop()
        suite.require_honest(tag)
        if self._suites:
            self._suites[-1].add(suite)

    def _close_case(self) -> None:
        case = self._case.pop()
        self._suites[-1].add(case.tally())
        self.cases.append(Case(case.name, case.outcome, case.message))


def _name_of(attributes: Mapping[str, str]) -> str:
    parts = (attributes.get("classname", ""), attributes.get("name", ""))
    return "::".join(filter(None, parts)) or "a test without a name"


def _status_of(attributes: Mapping[str, str]) -> Outcome:
    told = [attributes[key] for key in ("status", "result") if key in attributes]
    if strange := [text for text in told if text.lower() not in _STATUSES]:
        raise wrong("junit: status", "one that is known", strange[0][:100])
    outcomes = [_STATUSES[text.lower()] for text in told]
    # GoogleTest gives both: `status="notrun" result="suppressed"`.
    return max(outcomes, key=_SEVERITY.index, default="passed")


def _note(case: _OpenCase, tag: str, attributes: Mapping[str, str]) -> None:
    case.failures += tag in _FAILED
    case.errors += tag in _ERRORED
    case.skipped = case.skipped or tag == "skipped"
    if tag in _PROBLEMS and not case.message and attributes.get("message"):
        case.message = attributes["message"] + "\n"
