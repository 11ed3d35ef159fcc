from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.drivers import PATIENCE, PID_1, alive
from tests.machine import needs

if TYPE_CHECKING:
    from tests.drivers import Driver

pytestmark = needs("linux")

SUPERVISE: Final = """
from bootstrap.entrypoint import supervise
grace, *argv = sys.argv[1:]
sys.exit(supervise(argv, {**os.environ, 'FROZEN': 'yes'}, inbox, float(grace)))
"""
EVERYWHERE: Final = pytest.mark.parametrize(
    "wrapper",
    [
        pytest.param((), id="plain"),
        pytest.param(PID_1, id="pid-1", marks=needs("pid-namespace")),
    ],
)
ORPHANS: Final = """
import os, time
for _ in range(500):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(9)
    os.wait()
children = f"/proc/{os.getppid()}/task/{os.getppid()}/children"
end = time.monotonic() + 40
while len(open(children).read().split()) > 1 and time.monotonic() < end:
    time.sleep(0.01)
os._exit(7 if len(open(children).read().split()) == 1 else 8)
"""


def status(driver: Driver, *argv: str, grace: str = "30") -> int:
    """Supervise a command to its end; return the status."""
    with driver.started(SUPERVISE, grace, *argv) as entrypoint:
        return entrypoint.wait(timeout=PATIENCE)


def await_ready(entrypoint: subprocess.Popen[str]) -> None:
    """Wait until the command says that it is ready."""
    assert entrypoint.stdout is not None
    assert entrypoint.stdout.readline() == "ready\n"


def send(entrypoint: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal the entrypoint, or the tini above it: unshare does not pass signals on."""
    below = Path(f"/proc/{entrypoint.pid}/task/{entrypoint.pid}/children").read_text().split()
    is_wrapped = "unshare" in Path(f"/proc/{entrypoint.pid}/cmdline").read_text()
    os.kill(int(below[0]) if is_wrapped else entrypoint.pid, number)


@EVERYWHERE
@pytest.mark.parametrize(("command", "expected"), [("exit 7", 7), ("kill -9 $$", 137), (":", 0)])
def test_the_status_is_the_commands_own(
    driver: Driver, wrapper: tuple[str, ...], command: str, expected: int
) -> None:
    """Its code, or 128 + n for the signal that ended it."""
    assert status(replace(driver, wrapper=wrapper), "sh", "-c", command) == expected


@EVERYWHERE
def test_500_orphans_are_reaped_and_do_not_take_the_status(
    driver: Driver, wrapper: tuple[str, ...]
) -> None:
    """All are gone while the command runs, and its 7 stays 7."""
    command = (sys.executable, "-I", "-S", "-c", ORPHANS)
    assert status(replace(driver, wrapper=wrapper), *command) == 7


@EVERYWHERE
def test_leftovers_are_cleared(driver: Driver, wrapper: tuple[str, ...], token: str) -> None:
    """The command ends; its daemon, without parent or session, does not outlive it."""
    leaving = (
        f"sleep 50.{token} & setsid sleep 51.{token} & env -i setsid sleep 52.{token} & exit 3"
    )
    assert status(replace(driver, wrapper=wrapper), "sh", "-c", leaving) == 3
    assert not alive(token)


@EVERYWHERE
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"])
def test_every_signal_is_forwarded(driver: Driver, wrapper: tuple[str, ...], name: str) -> None:
    """The command sees the signal, and its answer becomes the status."""
    waiting = f"trap 'exit 42' {name}; echo ready; while :; do sleep 0.02; done"
    with replace(driver, wrapper=wrapper).started(
        SUPERVISE, "30", "bash", "-c", waiting, stderr=subprocess.DEVNULL
    ) as entrypoint:
        await_ready(entrypoint)
        send(entrypoint, signal.Signals[f"SIG{name}"])
        assert entrypoint.wait(timeout=PATIENCE) == 42


@EVERYWHERE
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT"])
def test_an_ignored_signal_is_followed_by_kill(
    driver: Driver, wrapper: tuple[str, ...], name: str, token: str
) -> None:
    """The command ignores the request to end: its tree is killed after the grace."""
    ignoring = f"trap '' {name}; echo ready; while :; do sleep 0.{token}; done"
    with replace(driver, wrapper=wrapper).started(
        SUPERVISE, "0.2", "bash", "-c", ignoring
    ) as entrypoint:
        await_ready(entrypoint)
        send(entrypoint, signal.Signals[f"SIG{name}"])
        assert entrypoint.wait(timeout=PATIENCE) == 137
    assert not alive(token)


@needs("pid-namespace", "tini")
def test_beneath_tini_nothing_changes(driver: Driver) -> None:
    """As a child of another init, orphans come to us all the same and signals pass through."""
    inner = replace(driver, wrapper=(*PID_1, "tini", "--"))
    assert status(inner, sys.executable, "-I", "-S", "-c", ORPHANS) == 7
    waiting = "trap 'exit 42' TERM; echo ready; while :; do sleep 0.02; done"
    with inner.started(SUPERVISE, "30", "bash", "-c", waiting) as entrypoint:
        await_ready(entrypoint)
        send(entrypoint, signal.SIGTERM)
        assert entrypoint.wait(timeout=PATIENCE) == 42


def test_user_signals_reach_the_command_alone(driver: Driver) -> None:
    """USR1 kills whoever does not expect it: the command's own child does not get it."""
    script = "trap 'kill -0 $child && kill $child; exit 42' USR1; sleep 50 & child=$!\n"
    with driver.started(SUPERVISE, "30", "bash", "-c", script + "echo ready; wait") as entrypoint:
        await_ready(entrypoint)
        entrypoint.send_signal(signal.SIGUSR1)
        assert entrypoint.wait(timeout=PATIENCE) == 42


def test_a_stop_reaches_the_whole_group(driver: Driver) -> None:
    """A shell that waits for its foreground program ends with it, as from a terminal."""
    with driver.started(
        SUPERVISE, "30", "sh", "-c", "echo ready; sleep 50; echo not reached"
    ) as entrypoint:
        await_ready(entrypoint)
        entrypoint.send_signal(signal.SIGTERM)
        assert entrypoint.wait(timeout=PATIENCE) == 143


def test_a_signal_before_the_start_is_forwarded(driver: Driver) -> None:
    """What arrived while the job was prepared is not lost."""
    before = "os.kill(os.getpid(), signal.SIGTERM)\n"
    with driver.started(before + SUPERVISE, "30", "sleep", "50") as entrypoint:
        assert entrypoint.wait(timeout=PATIENCE) == 143


@pytest.mark.parametrize(
    ("argv", "expected"), [(["no-such-program"], 127), (["/etc/passwd"], 126), (["/"], 126)]
)
def test_a_command_that_cannot_be_started_is_no_verdict(
    driver: Driver, argv: list[str], expected: int
) -> None:
    """127 or 126, as from a shell, and one line that says what was wrong."""
    env = {"PATH": os.defpath}  # a directory on it that may not be read would make 127 a 126
    with driver.started(SUPERVISE, "30", *argv, stderr=subprocess.PIPE, env=env) as entrypoint:
        told, errors = entrypoint.communicate(timeout=PATIENCE)
    assert entrypoint.returncode == expected
    assert told == ""
    assert errors.startswith(f"bootstrap: {argv[0]}: expected a program that can be started, got")
    assert errors.count("\n") == 1


def test_the_command_has_our_streams_and_the_frozen_values(driver: Driver) -> None:
    """Standard input, output and error are ours, the session is its own."""
    script = "cat; echo $FROZEN >&2; ps -o sid= -p $$ | tr -d ' '; echo $$"
    with driver.started(
        SUPERVISE, "30", "sh", "-c", script, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as entrypoint:
        told, errors = entrypoint.communicate("input\n", timeout=PATIENCE)
    first, session, pid = told.split()
    assert (first, errors) == ("input", "yes\n")
    assert session == pid


def test_no_processor_is_used_while_the_command_runs(driver: Driver) -> None:
    """The entrypoint sleeps until something happens: it is not scheduled a single time."""

    def woken(pid: int) -> list[str]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return [line for line in lines if "ctxt_switches" in line]

    with driver.started(SUPERVISE, "30", "sh", "-c", "echo ready; exec sleep 50") as entrypoint:
        await_ready(entrypoint)
        time.sleep(0.5)
        before = woken(entrypoint.pid)
        time.sleep(0.5)
        assert woken(entrypoint.pid) == before
        entrypoint.terminate()
        assert entrypoint.wait(timeout=PATIENCE) == 143
