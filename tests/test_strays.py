from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import ProcessesRemainError
from bootstrap.proctable import ProcessId, identify, read_process
from bootstrap.strays import find_strays, stop_strays
from tests.drivers import alive, running, wait_until
from tests.machine import needs

if TYPE_CHECKING:
    from tests.drivers import Driver

pytestmark = needs("linux")

# The runner dies of SIGKILL in the middle of a run, after its child has let go of a daemon.
CRASH: Final = """
def told(process):
    tell(pid=process.pid, start_ticks=process.start_ticks)
run('sh', '-c', sys.argv[1], env={'PATH': PATH, MARKER_VARIABLE: sys.argv[2]}, started=told)
"""


def crash(driver: Driver, marker: str, command: str, *sleeps: str) -> ProcessId:
    """Kill a runner once its child's `command` has started all of these sleeps."""
    with driver.started(CRASH, command, marker) as runner:
        assert runner.stdout is not None
        told = runner.stdout.readline()
        wait_until(lambda: all(running("sleep", seconds) for seconds in sleeps))
        runner.kill()
    return ProcessId(**json.loads(told))


@pytest.fixture
def marker() -> str:
    """Return the random value that one attempt's children carry."""
    return secrets.token_hex(16)


def test_a_daemon_is_found_by_its_marker_and_stopped(
    driver: Driver, token: str, marker: str
) -> None:
    """The runner was killed mid-run; the daemon with a session of its own is found and ended."""
    first, second = f"50.{token}", f"51.{token}"
    crash(driver, marker, f"setsid sleep {first} & sleep {second}", first, second)
    strays = find_strays(marker, ())
    assert set(alive(token)) == {stray.pid for stray in strays}
    stop_strays(strays, 30)
    assert not alive(token)
    assert find_strays(marker, ()) == ()


def test_a_cleared_environment_is_found_by_its_session(
    driver: Driver, token: str, marker: str
) -> None:
    """The marker is gone from its environment, but it is still in the child's session."""
    first, second = f"50.{token}", f"51.{token}"
    command = f"env -i sleep {first} & exec env -i sleep {second}"
    child = crash(driver, marker, command, first, second)
    assert find_strays(marker, ()) == ()
    strays = find_strays("", [child])
    assert {stray.pid for stray in strays} == set(alive(token))
    stop_strays(strays, 30)
    assert not alive(token)


def test_a_session_whose_leader_is_gone_is_found(driver: Driver, token: str, marker: str) -> None:
    """The child itself has ended; what stays in its session is its own."""
    first = f"50.{token}"
    command = f"env -i sh -c 'sleep {first}; :' & echo"
    child = crash(driver, marker, command + "; sleep 0.5", first)
    wait_until(lambda: read_process(child.pid) is None)
    strays = find_strays("", [child])
    assert {stray.pid for stray in strays} == set(alive(token))
    stop_strays(strays, 30)


def test_a_child_of_a_stray_is_found(driver: Driver, token: str, marker: str) -> None:
    """Neither marker nor session, but its parent has the marker."""
    first = f"50.{token}"
    crash(driver, marker, f"env -i setsid sleep {first}; :", first)
    strays = find_strays(marker, ())
    assert set(alive(token)) <= {stray.pid for stray in strays}
    stop_strays(strays, 30)
    assert not alive(token)


def test_a_reused_pid_is_no_stray() -> None:
    """The pid of a known process, and its session, belong to another process by now."""
    with subprocess.Popen(["sleep", "50"], start_new_session=True) as stranger:
        now = identify(stranger.pid)
        for ticks in (now.start_ticks - 1, now.start_ticks + 1, 0):
            assert find_strays("", [ProcessId(now.pid, ticks)]) == ()
        assert find_strays("", [now]) == (now,)
        stop_strays([ProcessId(now.pid, now.start_ticks + 1)], 30)
        assert stranger.poll() is None
        stop_strays([now], 30)
        assert stranger.wait() == -signal.SIGKILL


def test_another_marker_is_no_match(marker: str) -> None:
    """The marker must be the whole value of its own variable."""
    near = {"ATTEMPT_RUNNER_MARK": marker + "0", "OTHER": marker, "XATTEMPT_RUNNER_MARK": marker}
    with subprocess.Popen(["sleep", "50"], env=near) as child:
        assert find_strays(marker, ()) == ()
        child.kill()


@needs("root")
def test_an_unreadable_environment_is_no_match(plain_driver: Driver, marker: str) -> None:
    """Another user's process may carry the marker: who cannot read it does not claim it."""
    env = {"ATTEMPT_RUNNER_MARK": marker}
    with subprocess.Popen(["sleep", "50"], env=env) as child:
        told = plain_driver.run(
            """
from bootstrap.strays import find_strays
tell(root=os.getuid() == 0, found=len(find_strays(sys.argv[1], ())))
""",
            marker,
        )
        assert len(find_strays(marker, ())) == 1
        child.kill()
    assert told == {"root": False, "found": 0}


@needs("root")
def test_a_stray_that_may_not_be_signalled_is_an_integrity_error(plain_driver: Driver) -> None:
    """It is known, alive, and another user's: the machine is held."""
    with subprocess.Popen(["sleep", "50"], start_new_session=True) as child:
        process = identify(child.pid)
        told = plain_driver.run(
            """
from bootstrap.proctable import ProcessId
from bootstrap.strays import find_strays, stop_strays
try:
    stop_strays(find_strays('', [ProcessId(int(sys.argv[1]), int(sys.argv[2]))]), 1)
except RunnerError as error:
    tell(status=error.status, kind=type(error).__name__)
""",
            str(process.pid),
            str(process.start_ticks),
        )
        child.kill()
    assert told == {"status": 77, "kind": ProcessesRemainError.__name__}


def test_strays_that_fork_are_stopped(driver: Driver, token: str, marker: str) -> None:
    """What a stray forks between the search and its end is stopped with it."""
    first = f"50.{token}"
    forking = f"while :; do env -i setsid sleep 5.{token} & sleep 0.001; done & sleep {first}"
    crash(driver, marker, forking, first)
    while strays := find_strays(marker, ()):
        stop_strays(strays, 30)
    assert not alive(token)


def test_the_searcher_never_finds_itself(driver: Driver, marker: str) -> None:
    """A runner that was started by a stray carries the marker too, and does not kill itself."""
    told = driver.run(
        """
from bootstrap.strays import find_strays
tell(found=[stray.pid for stray in find_strays(sys.argv[1], ())], parent=os.getppid())
""",
        marker,
        env={**os.environ, "ATTEMPT_RUNNER_MARK": marker},
    )
    assert told["found"] == []
