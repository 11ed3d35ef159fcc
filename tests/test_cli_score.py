from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import ROOT_COMMAND
from tests.scores import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

COUNTS: Final = ("tests", "passed", "failed", "errored", "skipped")
KEYS: Final = ["verdict", *COUNTS, "score", "models", "reasons"]


def _score(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [*ROOT_COMMAND, "score", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_a_pass_is_exit_0_and_one_object() -> None:
    """The object has exactly the keys that are promised, in their order."""
    file = str(GOLDEN / "inspect" / "ok.eval")
    demand = ["--threshold", "accuracy>=0.5", "--exit-code", "0"]
    done = _score(file, "--score-format", "inspect", *demand, "--json")
    shown = json.loads(done.stdout)
    assert list(shown) == KEYS
    assert (shown["verdict"], shown["tests"], shown["score"]) == ("pass", 2, 0.5)
    assert shown["models"] == ["mockllm/model"]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "verdict"),
    [
        ("junit/fail.xml", "fail"),
        ("junit/allskip.xml", "no_tests"),
        ("junit/miscounted.xml", "error"),
        ("junit/not-there.xml", "error"),
        ("junit", "error"),
    ],
)
def test_everything_else_is_exit_1_and_says_why(file: str, verdict: str) -> None:
    """A file that cannot be read is an error like any other, in text and as an object."""
    words = [str(GOLDEN / file), "--score-format", "junit"]
    as_object, as_text = _score(*words, "--json"), _score(*words)
    shown = json.loads(as_object.stdout)
    assert (list(shown), shown["verdict"]) == (KEYS, verdict)
    assert shown["reasons"]
    assert as_text.stdout.startswith(f"verdict  {verdict}\n")
    assert "\nreason " in as_text.stdout
    assert (as_object.returncode, as_text.returncode) == (1, 1)


def test_the_exit_code_is_held_only_where_given() -> None:
    """Without one the file speaks alone; with one it must agree."""
    words = [str(GOLDEN / "junit" / "fail.xml"), "--score-format", "junit", "--json"]
    verdicts = [
        json.loads(_score(*words, *more).stdout)["verdict"]
        for more in ([], ["--exit-code", "1"], ["--exit-code", "0"])
    ]
    assert verdicts == ["fail", "fail", "error"]


def test_a_numeric_score_without_a_threshold_shows_its_metrics() -> None:
    """Who does not know the metric's name learns it from the error."""
    done = _score(str(GOLDEN / "lm-eval" / "ok.json"), "--score-format", "lm-eval")
    assert "metrics found: toy_mc/acc,none=0.6666666666666666" in done.stdout
    assert done.returncode == 1


def test_nothing_of_a_file_reaches_the_terminal_unescaped(tmp_path: Path) -> None:
    """Control characters, line ends and marks of direction are shown, not sent."""
    evil = "x\x1b[2Kaccept\r\naccept\n::error::\u2028\u202e"
    document = {"verdict": "pass", "reasons": [evil], "model_id": evil}
    path = tmp_path / "score.json"
    path.write_text(json.dumps(document))
    done = _score(str(path), "--score-format", "score-json")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert {line.split()[0] for line in done.stdout.splitlines()} <= {*KEYS, "reason"}
    assert not any(char < " " for char in done.stdout if char != "\n")


def test_a_fifo_a_device_and_a_huge_file_are_errors_in_bounded_time(tmp_path: Path) -> None:
    """Nothing is waited for, and nothing read without end; a link is followed."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)
    (tmp_path / "link").symlink_to(GOLDEN / "junit" / "pass.xml")
    paths = {tmp_path / "fifo": 1, "/dev/zero": 1, tmp_path / "huge": 1, tmp_path / "link": 0}
    for path, status in paths.items():
        assert _score(str(path), "--score-format", "junit").returncode == status, path


@pytest.mark.parametrize(
    "words",
    [
        ["--score-format", "junit"],
        ["x", "--score-format", "unknown"],
        ["x", "--score-format", "junit", "--threshold", "a>=1"],
        ["x", "--score-format", "inspect", "--threshold", "a"],
        ["x"],
    ],
)
def test_a_command_that_makes_no_sense_is_exit_2(words: list[str]) -> None:
    """Bad usage is one line on standard error, and nothing on standard output."""
    done = _score(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_an_exit_code_alone_comes_with_its_warning() -> None:
    """The one format that reads nothing says what it is worth."""
    done = _score("--score-format", "exit-code", "--exit-code", "0")
    assert (done.returncode, "exit codes lie" in done.stderr) == (0, True)


def test_a_lost_result_is_not_success() -> None:
    """A full disk behind standard output is not exit 0."""
    file = str(GOLDEN / "junit" / "pass.xml")
    with open("/dev/full", "w", encoding="ascii") as full:
        argv = [*ROOT_COMMAND, "score", file, "--score-format", "junit"]
        done = subprocess.run(argv, stdout=full, check=False, timeout=60, stderr=subprocess.PIPE)
    assert done.returncode not in (0, 1)
