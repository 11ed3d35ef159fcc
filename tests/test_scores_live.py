"""Scores that pytest writes while the tests run, read with the exit code it gave."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.scores import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from attempt_runner.scores.score import Score

# A reporter of twenty lines around tap.py: pytest's plugin for TAP does not load in pytest 9.2.
TAP_REPORTER: Final = """\
from tap.tracker import Tracker

tracker = Tracker(outdir=".", combined=True)

def pytest_runtest_logreport(report):
    if report.skipped:
        tracker.add_skip("live", report.nodeid, str(report.longrepr[2]))
    elif report.failed:
        tracker.add_not_ok("live", report.nodeid)
    elif report.when == "call":
        tracker.add_ok("live", report.nodeid)

def pytest_unconfigure():
    tracker.generate_tap_reports()
"""
SUITES: Final = {
    "passing": "def test_a(): pass\ndef test_b(): pass\n",
    "failing": "def test_a(): assert 0, 'no'\ndef test_b(): pass\n",
    "skipped": "import pytest\n@pytest.mark.skip\ndef test_a(): pass\n",
    "empty": "",
    "uncollectable": "import module_that_is_not_there\n",
    "teardown": (
        "import pytest\n@pytest.fixture\ndef late():\n    yield\n    raise RuntimeError('late')\n"
        "def test_a(late): pass\n"
    ),
    "subtests": (
        "def test_a(subtests):\n    for at in range(2):\n        with subtests.test(str(at)):\n"
        "            assert at == 0\n"
    ),
}
FILES: Final = {"junit": "report.xml", "ctrf": "report.json", "tap": "testresults.tap"}


def _run(directory: Path, suite: str) -> int:
    (directory / "test_live.py").write_text(SUITES.get(suite, suite))
    (directory / "conftest.py").write_text(TAP_REPORTER)
    (directory / "pytest.ini").write_text("[pytest]\n")
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_live.py"]
    reports = ["--junitxml", FILES["junit"], "--ctrf", FILES["ctrf"]]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *reports],
        cwd=directory,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=False,
        timeout=100,
    )
    return done.returncode


def _scores(directory: Path, code: int) -> dict[str, Score]:
    return {
        name: read_bytes(name, (directory / file).read_bytes(), exit_code=code)
        for name, file in FILES.items()
        if (directory / file).exists()
    }


@pytest.mark.parametrize(
    ("suite", "code", "verdicts"),
    [
        ("passing", 0, {"junit": "pass", "ctrf": "pass", "tap": "pass"}),
        ("failing", 1, {"junit": "fail", "ctrf": "fail", "tap": "fail"}),
        ("skipped", 0, {"junit": "no_tests", "ctrf": "no_tests", "tap": "no_tests"}),
        ("empty", 5, {"junit": "no_tests", "ctrf": "no_tests", "tap": "no_tests"}),
        ("uncollectable", 2, {"junit": "fail", "ctrf": "no_tests", "tap": "no_tests"}),
        ("teardown", 1, {"junit": "fail", "ctrf": "fail", "tap": "fail"}),
        ("subtests", 1, {"junit": "fail", "ctrf": "fail", "tap": "fail"}),
    ],
)
def test_what_pytest_writes_is_read(
    tmp_path: Path, suite: str, code: int, verdicts: dict[str, str]
) -> None:
    """The three formats of one run, each with the run's own exit code."""
    assert _run(tmp_path, suite) == code
    scores = _scores(tmp_path, code)
    assert {name: scores[name].verdict for name in scores} == verdicts


def test_a_suite_that_leaves_early_leaves_nothing_to_read(tmp_path: Path) -> None:
    """A patch that exits 0 from inside a test makes no report, and so no score."""
    code = _run(tmp_path, "import os\ndef test_a(): os._exit(0)\n")
    assert (code, _scores(tmp_path, code)) == (0, {})


def test_a_passing_report_beside_a_failing_exit_is_no_score(tmp_path: Path) -> None:
    """Whatever made pytest exit otherwise is not in the report."""
    assert _run(tmp_path, "passing") == 0
    verdicts = {name: score.verdict for name, score in _scores(tmp_path, 3).items()}
    assert verdicts == {"junit": "error", "ctrf": "error", "tap": "error"}
