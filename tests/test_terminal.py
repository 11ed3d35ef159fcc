"""What a person at a terminal of 80 columns and 24 lines sees, and what a pipe gets."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from attempt_runner.cli.logview import View, parse_since
from bootstrap.errors import UsageError
from bootstrap.joblog import JobLog
from bootstrap.state import open_state
from tests.jobs import ROOT_COMMAND, Job, clean_environment, make_job, until

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS, LINES = 80, 24


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run one job to a reject."""
    job = make_job(tmp_path_factory.mktemp("rejected"))
    assert job.run(scorer=job.scorer("fail")).stdout == "reject: verdict\n"
    return job


def at_terminal(job: Job, *words: str, environ: Mapping[str, str] | None = None) -> str:
    """Return what a command writes to a real terminal."""
    reader, terminal = pty.openpty()
    environment = clean_environment() | {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    command = [*ROOT_COMMAND, words[0], *job.arguments(), *words[1:]]
    with subprocess.Popen(
        command, stdout=terminal, env=environment | {"TERM": "xterm"} | dict(environ or {})
    ):
        os.close(terminal)
        told = b""
        try:
            while piece := os.read(reader, 4096):
                told += piece
        except OSError:  # EIO: the last writer is gone
            pass
    os.close(reader)
    return told.decode("ascii").replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["show", "explain"])
def test_a_view_fits_one_screen(rejected: Job, command: str) -> None:
    """No line is wider than the terminal, and no view longer."""
    lines = at_terminal(rejected, command, rejected.last, environ={"NO_COLOR": "1"}).splitlines()
    assert len(lines) < LINES
    assert max(map(len, lines)) <= COLUMNS


def test_colour_is_for_a_terminal_that_may_have_it(rejected: Job) -> None:
    """A pipe, NO_COLOR and a dumb terminal get plain text."""
    words = ("explain", rejected.last)
    assert "\x1b[31m" in at_terminal(rejected, *words)
    plain = rejected.command(*words).stdout
    assert "\x1b" not in plain
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in at_terminal(rejected, *words, environ=environ)


def test_a_pipe_gets_every_byte(rejected: Job) -> None:
    """Only a terminal's lines are cut."""
    assert "..." in at_terminal(rejected, "show", rejected.last)
    assert str(rejected.attempts[0]) in rejected.command("show", rejected.last).stdout


def test_explain_ends_in_what_to_do_next(rejected: Job) -> None:
    """Of each field that refused; of an attempt that none did, too."""
    lines = rejected.command("explain", rejected.last).stdout.splitlines()
    assert lines[-1].startswith("  next      the scorer said fail: ")


def test_the_log_is_cut_to_what_was_asked(rejected: Job) -> None:
    """By event, by attempt, and by time; what is not asked is not printed."""
    only = rejected.command("log", "--event", "rejected", "--event", "model_frozen").stdout
    assert [line.split()[2] for line in only.splitlines()] == ["model_frozen", "rejected"]
    own = rejected.command("log", "--attempt", rejected.last).stdout.splitlines()
    assert own
    assert all(f"attempt_id={rejected.last}" in line for line in own)
    assert rejected.command("log", "--since", "1d").stdout.count("\n") == len(rejected.log)
    assert rejected.command("log", "--since", "2999-01-01").stdout == ""


@pytest.mark.parametrize("text", ["", "yesterday", "5", "5w", "-1h", "99999999999d", "999999999d"])
def test_a_time_that_cannot_be_told_is_bad_usage(text: str) -> None:
    """It is never taken for no limit."""
    with pytest.raises(UsageError):
        parse_since(text, datetime.now(UTC))


def test_a_view_without_limits_shows_all(rejected: Job) -> None:
    """An empty choice chooses everything."""
    with open_state(rejected.workspace, rejected.state_root, create=False, named=True) as state:
        record = JobLog(state.directory).append("pruned")
    assert View().shows(record)
    assert not View(attempt_id="att-x").shows(record)


def test_following_prints_what_is_appended_until_a_signal(rejected: Job) -> None:
    """One line as it comes, then status 0."""
    words = ("log", *rejected.arguments(), "--follow", "--event", "revoked")
    with subprocess.Popen(
        [*ROOT_COMMAND, *words], stdout=subprocess.PIPE, env=clean_environment()
    ) as following:
        assert following.stdout
        os.set_blocking(following.stdout.fileno(), False)
        told: list[bytes] = []
        with open_state(rejected.workspace, rejected.state_root, create=False, named=True) as state:
            until(lambda: _appended(state, following, told))
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0
    assert b" revoked" in told[0]


def _appended(state: object, following: subprocess.Popen[bytes], told: list[bytes]) -> bool:
    """Append a record and see whether the follower has told of one."""
    JobLog(state.directory).append("revoked")  # type: ignore[attr-defined]
    time.sleep(0.2)
    assert following.stdout
    if piece := following.stdout.read():
        told.append(piece)
    return bool(told)
