from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.scores.formats import FORMATS
from attempt_runner.settings import flag_of, settings
from tests.jobs import DIFF

if TYPE_CHECKING:
    from tests.jobs import Job

PAGE: Final = (Path(__file__).parent.parent / "docs" / "scores.md").read_text(encoding="utf-8")
COMMANDS: Final = re.findall(r"^attempt-runner run (.*)$", PAGE, re.MULTILINE)


def test_every_format_has_a_command_of_its_own() -> None:
    """Nobody has to guess how a tool is called."""
    named = {shlex.split(line)[shlex.split(line).index("--score-format") + 1] for line in COMMANDS}
    assert named == set(FORMATS)


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_uses_flags_that_there_are(line: str) -> None:
    """The page does not promise what the command line does not know."""
    known = {f"--{flag_of(item.name)}" for item in settings()}
    own, scorer = line.split(" -- ", 1)
    assert {word for word in shlex.split(own) if word.startswith("--")} <= known
    assert shlex.split(scorer)


@pytest.mark.parametrize("script", re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
def test_each_script_is_a_shell_script(script: str) -> None:
    """What is to be copied parses."""
    done = subprocess.run(["sh", "-n"], input=script.encode(), check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(("tested", "line"), [("x == 1", "reject: verdict"), ("x == 2", "accept")])
def test_the_native_scorer_of_the_page_judges_a_change(job: Job, tested: str, line: str) -> None:
    """The twenty lines are run as they stand, on a patch that passes and on one that does not."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    job.workspace.joinpath("change.diff").write_text(DIFF)
    job.base.joinpath("test_app.py").write_text(_TEST.format(tested=tested))
    done = job.run("--base", str(job.base), scorer=job.scorer("unused", text=text))
    assert done.stdout.splitlines()[0] == line, done.stderr
    (attempt,) = job.attempts
    assert json.loads((attempt / "score").read_bytes())["reasons"]


_TEST: Final = """\
import unittest

from app import x


class TestApp(unittest.TestCase):
    def test_app(self):
        assert {tested}
"""
