"""The page of messages names every kind there is, each with its status and cure."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.advice import NEXT
from attempt_runner.cli.app import BUG
from attempt_runner.cli.output import OutputLostError
from attempt_runner.gate import ORDER
from bootstrap import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = (ROOT / "docs/errors.md").read_text()
ROWS: Final = {
    cells[0]: cells[1:]
    for cells in re.findall(r"^\| `(\w+)` \| (.*) \| (.*?) \|$", PAGE, re.MULTILINE)
}


def _classes() -> Iterator[type[errors.RunnerError]]:
    """Find every class of the tree, wherever it is defined."""
    for path in sorted(ROOT.glob("*/**/*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.startswith(("bootstrap.", "attempt_runner.")):
            for name in re.findall(r"^class (\w+Error)\(", path.read_text(), re.MULTILINE):
                known = getattr(importlib.import_module(module), name)
                if issubclass(known, errors.RunnerError):
                    yield known


CLASSES: Final = [known for known in _classes() if known is not errors.RunnerError]


@pytest.mark.parametrize("known", [*CLASSES, OutputLostError], ids=lambda known: known.__name__)
def test_every_class_of_error_has_its_row_and_status(known: type[Exception]) -> None:
    """A class that is added needs a cause and a cure before it can be released."""
    status, _, cause = ROWS[known.__name__][0].partition(" | ")
    assert int(status) == known.status  # type: ignore[attr-defined]
    assert cause


def test_a_bug_has_its_row() -> None:
    """What nobody expected has a status of its own."""
    assert ROWS["bug"][0].startswith(f"{BUG} | ")


@pytest.mark.parametrize("name", ORDER)
def test_every_reject_has_the_cure_that_explain_prints(name: str) -> None:
    """Page and command never say two things."""
    assert ROWS[name][1] == NEXT[name]


def test_the_page_names_nothing_that_there_is_not() -> None:
    """A class or reject that was removed leaves no row behind."""
    known = {item.__name__ for item in CLASSES} | {OutputLostError.__name__, "bug", *ORDER}
    assert set(ROWS) == known
