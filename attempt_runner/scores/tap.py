r"""TAP, the Test Anything Protocol, versions 12 to 14 (testanything.org).

tap.py tells a test line's parts. Plan, bail-out, subtests and YAML blocks are read here:
tap.py has no subtests, takes `1005` for a plan and `\# TODO` for a directive.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tap.line import Result  # type: ignore[import-untyped]  # it carries no types
from tap.parser import Parser  # type: ignore[import-untyped]  # as above

from attempt_runner.scores.rules import Case, judge_cases
from attempt_runner.scores.score import NoScoreError, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.scores.rules import Outcome
    from attempt_runner.scores.score import Score, ScoreRules, Source

INDENT: Final = 4  # columns of one level of subtests (TAP 14)
MAX_LEVELS: Final = 32
MAX_TESTS: Final = 200_000  # of one level: some seconds of work

_PARSER: Final = Parser()
_PLAN: Final = re.compile(r"1\.\.([0-9]{1,6})\s*(?:#.*)?")
_TEST: Final = re.compile(r"(?:not )?ok(?:\s.*)?", re.DOTALL)
_BAIL: Final = re.compile(r"\s*bail out!", re.IGNORECASE)
_SKIP: Final = re.compile(r"#\s*skip", re.IGNORECASE)
_ESCAPED: Final = {"\\\\": "\ue000", "\\#": "\ue001"}  # stand-ins while tap.py looks for a `#`


def read(source: Source, _rules: ScoreRules) -> Score:
    """Return the score of a TAP stream, or raise NoScoreError.

    1. UTF-8, ended by a newline: a line that is cut loses its directive.
    2. No bail-out, anywhere.
    3. At every level one plan, first or last, and as many tests as it says, each number once.
    4. A test with subtests stands for them; it fails if one of them failed.
    5. `not ok` is failed, unless it is a TODO: then, as after SKIP, it did not count.
    6. The rules of `judge_cases`.

    Other lines are noise, as the protocol has it. TAP names no model.
    """
    text = _decoded(source.data)
    levels = [_Level()]
    for line in _outside_yaml(text):
        if _BAIL.match(line):
            raise wrong("tap", "every test to run", line.strip()[:200])
        depth, odd = divmod(len(line) - len(line.lstrip(" ")), INDENT)
        content = line.strip(" ")  # a line behind a tab is noise
        if not odd and (_PLAN.fullmatch(content) or _TEST.fullmatch(content)):
            _enter(levels, depth)
            levels[-1].take(content)
    _enter(levels, 0)
    return judge_cases(source, levels[0].closed())


def _decoded(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong("tap", "UTF-8", error) from error
    if not text.endswith("\n"):
        raise NoScoreError("incomplete", "tap: expected a newline at the end, got none")
    return text


def _outside_yaml(text: str) -> Iterator[str]:
    """Yield the lines that no YAML block holds: such a block may quote any TAP."""
    end = ""
    # Not splitlines: it also splits at characters that a test's name may hold.
    for raw in io.StringIO(text, newline="\n"):
        line = raw.rstrip("\r\n")
        if end:
            end = "" if line.rstrip() == end else end
        elif line.strip() == "---" and line.startswith(" "):
            end = line.rstrip().replace("---", "...")
        else:
            yield line
    if end:
        raise NoScoreError("incomplete", "tap: expected the end of a YAML block, got none")


def _enter(levels: list[_Level], depth: int) -> None:
    """Open or close levels until the last is the one at `depth`."""
    if depth > min(len(levels), MAX_LEVELS):
        raise wrong("tap", "subtests one level deeper than their test", f"{depth} levels")
    if depth == len(levels):
        levels.append(_Level())
    while len(levels) > depth + 1:
        children = levels.pop().closed()
        levels[-1].children = children


@dataclass(slots=True)
class _Level:
    """The tests of one level while it is open."""

    cases: list[Case] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)
    plan: int | None = None
    complete: bool = False  # its plan came last
    children: list[Case] | None = None  # of the test that must come next

    def take(self, line: str) -> None:
        if match := _PLAN.fullmatch(line):
            self._take_plan(int(match[1]))
        else:
            self._take_test(line)

    def _take_plan(self, plan: int) -> None:
        if self.plan is not None:
            raise wrong("tap: plan", "one", "two")
        self.plan = plan
        self.complete = bool(self.numbers)

    def _take_test(self, line: str) -> None:
        if self.complete:
            raise wrong("tap: plan", "it first or last", "it between tests")
        number, case = _parsed(line, len(self.numbers) + 1)
        if number in self.numbers:
            raise wrong("tap", "each test number once", f"{number} twice")
        if len(self.numbers) >= MAX_TESTS:
            raise wrong("tap", f"at most {MAX_TESTS} tests in a row", "more")
        self.numbers.add(number)
        self.cases += [case] if self.children is None else _with_children(case, self.children)
        self.children = None

    def closed(self) -> list[Case]:
        """Return the level's cases, having held them against its plan."""
        if self.plan is None or self.children is not None:
            missing = "a plan" if self.plan is None else "a test line after its subtests"
            raise NoScoreError("incomplete", f"tap: expected {missing}, got none")
        if len(self.numbers) < self.plan:
            raise NoScoreError(
                "incomplete", f"tap: expected {self.plan} tests, got {len(self.numbers)}"
            )
        if self.numbers != set(range(1, self.plan + 1)):
            raise wrong(
                "tap",
                f"the tests 1 to {self.plan}",
                f"tests up to {max(self.numbers)}",
            )
        return self.cases


def _parsed(line: str, following: int) -> tuple[int, Case]:
    masked = line
    for escape, stand_in in _ESCAPED.items():
        masked = masked.replace(escape, stand_in)
    try:
        result = _PARSER.parse_line(masked)
    except ValueError as error:
        raise wrong("tap: test number", "a number", error) from error
    if not isinstance(result, Result):
        raise wrong("tap", "a test line", line[:200])
    name = result.description.removeprefix("- ")
    for escape, stand_in in _ESCAPED.items():
        name = name.replace(stand_in, escape[1:])
    number = following if result.number is None else result.number
    return number, Case(name or f"test {number}", _outcome(result, masked))


def _outcome(result: Result, line: str) -> Outcome:
    if not result.ok:
        return "skipped" if result.todo else "failed"
    # tap.py takes the first `#` for the directive's: `ok 1 - issue #12 # SKIP` is skipped too.
    return "skipped" if result.skip or _SKIP.search(line) else "passed"


def _with_children(case: Case, children: list[Case]) -> list[Case]:
    if case.outcome == "skipped":
        return [replace(child, outcome="skipped") for child in children]
    if case.outcome == "failed" and all(child.outcome != "failed" for child in children):
        return [*children, case]
    return children
