"""The command line: help that stands alone, statuses that mean one thing, output for machines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from attempt_runner.cli.app import COMMANDS, EPILOG, run_command_line
from attempt_runner.settings import flag_of, settings
from bootstrap import __version__
from bootstrap.signals import SignalInbox
from tests.jobs import ROOT_COMMAND, Job, clean_environment, make_job

if TYPE_CHECKING:
    from collections.abc import Callable

STATUSES: Final = ("0 accept", "1 reject", "2 bad", "70", "75", "77", "78")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process; only for what starts nothing and locks nothing."""

    def command(*words: str) -> tuple[int, str, str]:
        status = run_command_line(words, SignalInbox())
        out, err = capsys.readouterr()
        return status, out, err

    return command


def unwrapped(text: str) -> str:
    """Return help text with its line breaks and runs of spaces as single spaces."""
    return " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_stands_alone(run: Callable[..., tuple[int, str, str]], name: str) -> None:
    """What it does, every option with a help text, and what each exit status means."""
    status, out, err = run(name, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: attempt-runner {name} ")
    assert unwrapped(EPILOG) in unwrapped(out)
    options = re.split(r"\n  (?=-)", out.partition("\nOptions:\n")[2])
    for option in options:
        assert re.match(r"(  )?--[a-z]", option), option
        words = option.split("  ", 1)
        assert len(words) == 2, option
        assert words[1].strip(), option
    assert "None" not in out
    assert "\x1b" not in out


def test_help_lists_every_command(run: Callable[..., tuple[int, str, str]]) -> None:
    """In their order, each with what it is for; the statuses are there too."""
    status, out, err = run("--help")
    assert (status, err) == (0, "")
    found = re.findall(r"^  ([a-z-]+)  +\S", out.partition("Commands:")[2], re.MULTILINE)
    assert tuple(found) == COMMANDS
    assert all(status in unwrapped(out) for status in STATUSES)


def test_run_has_a_flag_for_every_setting(run: Callable[..., tuple[int, str, str]]) -> None:
    """And `bootstrap` and `attempt` have those of their own stages."""
    flags = {
        name: set(re.findall(r"^  (--[a-z-]+)", run(name, "--help")[1], re.MULTILINE))
        for name in ("run", "bootstrap", "attempt")
    }
    for item in settings():
        flag, stage = f"--{flag_of(item.name)}", item.metadata["stage"]
        if item.name != "scorer":
            assert flag in flags["run"]
            assert (flag in flags["bootstrap"]) is (stage in ("both", "start")), flag
            assert (flag in flags["attempt"]) is (stage in ("both", "attempt")), flag


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("run",),
        ("run", "--no-such-flag"),
        ("run", "--workspace"),
        ("run", "--workspace", "w", "--wait", "soon"),
        ("gate",),
        ("gate", "att-x", "--workspace", "/", "extra"),
        ("log", "--workspace"),
        ("bootstrap", "--workspace", "w", "--format", "xml"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    run: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    """On standard error, with nothing on standard output, and no trace."""
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err.startswith("attempt-runner: ")
    assert err.count("\n") == 1


def test_a_usage_error_escapes_what_was_given(run: Callable[..., tuple[int, str, str]]) -> None:
    """A caller's own words are untrusted too: a script may have them from an agent."""
    status, out, err = run("run\n\x1b[2Kaccept")
    assert (status, out) == (2, "")
    assert err.isascii()
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_version(run: Callable[..., tuple[int, str, str]]) -> None:
    """One line, from wherever the command is asked."""
    assert run("--version") == (0, f"attempt-runner {__version__}\n", "")


def test_script_and_module_are_the_same_command() -> None:
    """The console script and `python -I -m`, each in a process of its own."""
    script = os.path.join(os.path.dirname(sys.executable), "attempt-runner")
    commands = [list(ROOT_COMMAND), *([[script]] if os.path.exists(script) else [])]
    for command in commands:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            check=False,
            env=clean_environment(),
            text=True,
        )
        assert (done.returncode, done.stdout) == (0, f"attempt-runner {__version__}\n")


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {}])
def test_a_terminal_gets_no_colour_against_its_will(environ: dict[str, str]) -> None:
    """Neither help nor an error holds an escape sequence."""
    ours, theirs = os.openpty()
    for words in (["run", "--help"], ["run"]):
        subprocess.run(
            [*ROOT_COMMAND, *words],
            check=False,
            env=clean_environment() | {"TERM": "xterm-256color"} | environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            timeout=100,
        )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # EIO: the other end is closed and everything was read
        pass
    os.close(ours)
    assert b"Usage: attempt-runner run" in shown
    assert b"\x1b" not in shown


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run one job to a reject and one to an accept."""
    job = make_job(tmp_path_factory.mktemp("decided"))
    assert job.run(scorer=job.scorer("fail")).stdout == "reject: verdict\n"
    assert job.run("--base", str(job.base)).stdout == "accept\n"
    return job


def asked(job: Job, *words: str) -> tuple[str, Any]:
    """Return what a command tells of a job, for people and as JSON."""
    text, data = job.command(*words), job.command(*words, "--json")
    for done in (text, data):
        assert (done.returncode, done.stderr) == (0, "")
    return text.stdout, json.loads(data.stdout)


def test_show_and_explain_tell_of_an_accept(decided: Job) -> None:
    """Who it was, what happened in order, where the files lie; exit 0, whatever they tell."""
    text, data = asked(decided, "show", decided.last)
    assert data["attempt_id"] == decided.last
    assert data["outcome"] == "accepted"
    assert [record["event"] for record in data["records"]][-1] == "accepted"
    assert data["findings"] == []
    assert os.path.isdir(data["files"])
    for word in (decided.last, "model-a", data["files"], "receipt_written"):
        assert word in text
    text, data = asked(decided, "explain", decided.last)
    assert "was accepted" in text
    assert (data["outcome"], data["findings"]) == ("accepted", [])


def test_show_and_explain_tell_of_a_reject(decided: Job) -> None:
    """Each field with what was expected and found, and what to do next."""
    rejected = next(item for item in decided.log if item["event"] == "rejected")["attempt_id"]
    text, data = asked(decided, "explain", rejected)
    (finding,) = data["findings"]
    assert (finding["field"], finding["expected"], finding["found"]) == ("verdict", "pass", "fail")
    assert finding["next"] in text
    assert "rejected; that is final" in text
    text, data = asked(decided, "show", rejected)
    assert data["outcome"] == "rejected"
    assert "refused: verdict" in text


def test_log_tells_every_record(decided: Job) -> None:
    """A line each, for people and as JSON; --verify counts them."""
    done = decided.command("log", "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [item["event"] for item in told] == decided.events
    assert len(decided.command("log").stdout.splitlines()) == len(told)
    text, data = asked(decided, "log", "--verify")
    assert str(len(told)) in text
    assert data["records"] == len(told)


def test_an_attempt_that_is_not_there_cannot_be_told_of(decided: Job) -> None:
    """78 for an unknown attempt or workspace, 2 for what is no id, and nothing is printed."""
    unknown = f"att-20261130T214455Z-{'0' * 32}"
    for command in ("show", "explain"):
        for attempt, status in ((unknown, 78), ("../x", 2)):
            done = decided.command(command, attempt)
            assert (done.returncode, done.stdout) == (status, "")
            assert done.stderr.count("\n") == 1


def test_an_open_attempt_is_told_of(job: Job) -> None:
    """One whose runner died has no closing record, and is shown as that."""
    assert job.interrupt("SIGKILL", "open", "receipt.json", 1, *job.run_words()) == -9
    _, data = asked(job, "show", job.last)
    assert data["outcome"] == "open"
    text, _ = asked(job, "explain", job.last)
    assert "no closing record" in text
