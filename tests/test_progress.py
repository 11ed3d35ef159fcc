"""Progress: for a terminal alone, escaped, and told by nobody but the log."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.jobs import ROOT_COMMAND, Job, clean_environment, make_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TALKER = """\
import time
print("\\x1b[2Kaccept\\r half done", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job of the tests."""
    return make_job(tmp_path)


def at_terminal(job: Job, enough: Callable[[bytes], bool], *flags: str) -> tuple[int, bytes]:
    """Run a job whose scorer stays, with standard error on a terminal, until it told enough."""
    reader, terminal = pty.openpty()
    words = job.run_words(*flags, scorer=job.scorer(text=TALKER))
    command = [*ROOT_COMMAND, words[0], *job.arguments(), *words[1:]]
    told = b""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=terminal, env=clean_environment()
    ) as runner:
        os.close(terminal)
        deadline = time.monotonic() + 90
        while not enough(told) and time.monotonic() < deadline:
            told += os.read(reader, 4096)
        runner.send_signal(signal.SIGINT)
        try:
            while piece := os.read(reader, 4096):
                told += piece
        except OSError:  # EIO: the last writer is gone
            pass
    os.close(reader)
    return runner.returncode, told


def test_a_terminal_is_told_what_runs_for_how_long_and_its_last_line(job: Job) -> None:
    """The child's own text cannot move the cursor; Ctrl-C says what stops and what is kept."""
    status, told = at_terminal(job, lambda told: b"half done" in told)
    assert status == 1
    assert b"scorer running, " in told
    assert b" s of 3600: \\x1b[2Kaccept\\r half done" in told
    assert b"stopping agent and scorer" in told
    assert b"are kept" in told


def test_who_waits_for_the_lock_is_told_who_holds_it(job: Job, tmp_path: Path) -> None:
    """By process, age and command, as far as the kernel tells."""
    marker = tmp_path / "held"
    blocker = f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(600)\n"
    script = job.script("holder.py", blocker)
    holder = job.start(*job.run_words(scorer=[os.path.realpath("/proc/self/exe"), str(script)]))
    try:
        while not marker.exists():
            time.sleep(0.01)
        expected = f"held by process {holder.pid} for ".encode()
        status, told = at_terminal(job, lambda told: expected in told, "--wait", "80")
        assert expected in told
        assert status == 75
    finally:
        holder.send_signal(signal.SIGTERM)
        holder.communicate()


def test_a_pipe_is_told_nothing_of_it(job: Job) -> None:
    """A log of a pipeline holds messages only."""
    slow = "import time\ntime.sleep(2.5)\n"
    done = job.run(scorer=job.scorer(text=slow))
    assert done.stdout == "reject: missing_receipt\n"
    assert "\x1b" not in done.stderr
    assert "running" not in done.stderr
