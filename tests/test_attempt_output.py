"""What reaches a reader: one line of verdict, never lost for free, never an agent's own words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import AGENT, DIFF, ROOT_COMMAND, SCORER, Job, clean_environment, make_job

if TYPE_CHECKING:
    from pathlib import Path

# What a CI system, a terminal or a reader's eye would take for something else.
HOSTILE: Final = (
    "fine\n::error::planted",
    "\n##vso[task.complete result=Succeeded;]",
    "\x1b[2Kaccept",
    "\raccept",
    "line\u2028accept",
    "\u202etpecca",
    "\x9b2Kaccept",
    "bell\x00\x07\x7f",
    "accept",
)


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, str, str]:
    """Run a job whose reasons, model id and agent's name are hostile; return what it printed."""
    job = make_job(tmp_path_factory.mktemp("rejected"))
    score = {"verdict": "fail", "reasons": list(HOSTILE), "model_id": "model\n\x1b[2Kaccept"}
    text = f"import os\nopen(os.environ['SCORE_FILE'], 'w').write({json.dumps(score)!r})\n"
    shout = "import sys\nsys.stdout.write('\\naccept\\n\\x1b[2K::error::x\\n')\n"
    agent = job.script("agent\n\x1b[2Kaccept.py", AGENT + shout)
    done = job.run(
        *("--agent", f"{sys.executable} -I '{agent}'"),
        scorer=job.scorer("\raccept", text=text + shout),
    )
    assert done.returncode == 1
    return job, done.stdout, done.stderr


def is_plain(text: str) -> bool:
    """Tell whether a text is printable ASCII in lines that no CI system would execute."""
    starts = ("::", "##", "accept")
    return re.fullmatch(r"[\n -~]*", text) is not None and not any(
        line.startswith(starts) for line in text.splitlines()
    )


def test_a_verdict_is_one_line_and_all_else_is_escaped(rejected: tuple[Job, str, str]) -> None:
    """Standard output is the reject alone; a hostile model id is escaped on standard error."""
    _, out, err = rejected
    assert out == "reject: served_model\n"
    assert is_plain(err)
    assert r"model\n\x1b[2Kaccept" in err


@pytest.mark.parametrize("command", ["show", "explain", "log"])
def test_what_tells_of_an_attempt_escapes_it(rejected: tuple[Job, str, str], command: str) -> None:
    """Whatever an agent, a scorer or a model wrote is shown as ASCII, whoever asks."""
    job, _, _ = rejected
    words = [command] if command == "log" else [command, job.last]
    done = job.command(*words)
    assert done.returncode == 0
    assert is_plain(done.stdout)
    assert done.stderr == ""
    told = job.command(*words, "--json")
    assert is_plain(told.stdout)
    objects = told.stdout.splitlines() if command == "log" else [told.stdout]
    assert all(isinstance(json.loads(text), dict) for text in objects)


def test_what_is_stored_is_true(job: Job) -> None:
    """In the receipt a reason is what the scorer wrote, byte for byte."""
    text = SCORER.replace('["because"]', repr(list(HOSTILE))).replace("sys.argv[1]", '"pass"')
    done = job.run(scorer=job.scorer(text=text))
    assert (done.returncode, done.stdout) == (0, "accept\n")
    receipt = json.loads((job.attempts[0] / "receipt.json").read_bytes())
    assert receipt["reasons"] == list(HOSTILE)


@pytest.mark.parametrize("name", [b"a\nb\x1b[2K", b"\xff\xfe", b"::x::y"])
def test_a_workspace_of_any_name_is_shown_as_ascii(tmp_path: Path, name: bytes) -> None:
    """Names are bytes: an attempt in such a place is accepted, and told of in ASCII."""
    directory = tmp_path / os.fsdecode(name)
    directory.mkdir()
    job = make_job(directory)
    flags = ("--score-path", "a\nb", "--base", str(job.base))
    words = job.run_words(*flags, scorer=job.scorer())
    done = subprocess.run(
        [*ROOT_COMMAND, words[0], *job.arguments(), *words[1:]],
        capture_output=True,
        check=False,
        cwd=directory,
        env=clean_environment(),
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, b"accept\n"), done.stderr
    assert is_plain(done.stderr.decode("ascii"))
    assert job.judged(job.last) == "accept"


LOST: Final = {
    "full": '"$@" > /dev/full',
    "closed": '"$@" >&-',
    "all closed": '"$@" >&- 2>&- <&-',
    "no reader": '{ sleep 0.2; "$@"; echo $? > code; } | true; read code < code; exit "$code"',
}


def run_into(how: str, job: Job, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose standard output cannot be written."""
    return subprocess.run(
        ["sh", "-c", LOST[how], "sh", *ROOT_COMMAND, *words],
        capture_output=True,
        check=False,
        cwd=job.directory,
        env=clean_environment(),
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("how", LOST)
def test_a_verdict_that_could_not_be_written_is_no_success(job: Job, how: str) -> None:
    """Accept is status 0 only together with its line; what was decided stays decided."""
    name, *arguments = job.run_words()
    done = run_into(how, job, name, *job.arguments(), *arguments)
    assert done.returncode == 77
    assert "Traceback" not in done.stderr
    assert job.events[-1] == "accepted"
    for words in (("gate", job.last), ("log",)):
        done = run_into(how, job, *words, *job.arguments())
        assert done.returncode == 77, words
        assert "Traceback" not in done.stderr
    assert job.judged(job.last) == "accept"


def test_a_reject_that_could_not_be_written_stays_a_reject(job: Job) -> None:
    """The status alone says no: never a status that a scheduler would try again."""
    name, *arguments = job.run_words(scorer=job.scorer("fail"))
    done = run_into("full", job, name, *job.arguments(), *arguments)
    assert done.returncode == 1
    assert job.events[-1] == "rejected"


@pytest.mark.parametrize("how", ["full", "closed", "no reader"])
def test_other_results_that_are_lost_are_no_success(job: Job, how: str) -> None:
    """The lab's table, the bootstrap's values, the version: each is lost with a status."""
    frozen = ("bootstrap", *job.arguments(), "--model", "model-a")
    for words in (("lab",), frozen, ("--version",)):
        done = run_into(how, job, *words)
        assert done.returncode != 0, words
        assert "Traceback" not in done.stderr


def test_notes_and_warnings_are_not_results(job: Job) -> None:
    """Standard error may be closed or full: the verdict is told all the same."""
    name, *arguments = job.run_words()
    for lost in ("2>&-", "2>/dev/full"):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {lost}', "sh", *ROOT_COMMAND, name, *job.arguments(), *arguments],
            check=False,
            cwd=job.directory,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
        )
        assert (done.returncode, done.stdout) == (0, "accept\n")
    assert job.diff.read_text() == DIFF
