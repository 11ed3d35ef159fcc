from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.drivers import alive, running, wait_until
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.drivers import Driver

pytestmark = needs("linux")

TELL_EXIT = "tell(code=end.code, signal=end.signal, status=end.status, timed_out=end.timed_out)"


@pytest.mark.parametrize(
    ("command", "code", "number", "status"),
    [
        ("exit 7", 7, None, 7),
        ("exit 256", 0, None, 0),
        ("exit 247", 247, None, 247),
        ("kill -9 $$", None, 9, 137),
        ("kill -TERM $$", None, 15, 143),
    ],
)
def test_code_and_signal_are_recorded_apart(
    driver: Driver, command: str, code: int | None, number: int | None, status: int
) -> None:
    """An exit code never passes for a signal, nor the reverse; the status joins them."""
    told = driver.run(f"end = run('bash', '-c', {command!r})\n{TELL_EXIT}")
    assert told == {"code": code, "signal": number, "status": status, "timed_out": False}


def test_a_background_child_cannot_hold_the_pipe(driver: Driver, token: str) -> None:
    """The child's exit ends the run, while a grandchild still has its standard output."""
    told = driver.run(f"""
end = run('sh', '-c', 'sleep 50 {token} & sleep 50.{token} & echo done')
tell(code=end.code, log=logged(), found=clear().found)
""")
    assert told == {"code": 0, "log": "done\n", "found": 2}
    assert not alive(token)


def test_output_before_the_exit_is_kept_while_a_grandchild_writes_on(driver: Driver) -> None:
    """The last words of a child are in the log, though its descendant never stops writing."""
    told = driver.run("""
end = run('sh', '-c', 'echo first; (while :; do echo noise; done) & sleep 0.2; exit 3')
clear()
tell(code=end.code, first=logged().splitlines()[0])
""")
    assert told == {"code": 3, "first": "first"}


def test_closed_output_does_not_end_the_run(driver: Driver) -> None:
    """A child that closes its output is waited for, and not in a busy loop."""
    told = driver.run("""
before = time.process_time()
end = run('sh', '-c', 'exec >&- 2>&-; sleep 1; exit 4')
tell(code=end.code, idle=time.process_time() - before < 0.5)
""")
    assert told == {"code": 4, "idle": True}


def test_endless_output_is_cut_in_constant_memory(driver: Driver) -> None:
    """`yes` and one line of 200 MB keep the cap's bytes; the rest is read and dropped."""
    told = driver.run("""
import resource
small = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
line = run('head', '-c', '200000000', '/dev/zero', kept=1000)
yes = run('sh', '-c', 'yes', timeout=0.3, kept=1000, log=LOG + '-2')
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - small
tell(bytes=line.output_bytes, cut=[line.truncated, yes.truncated], code=line.code,
     kept=[os.path.getsize(LOG), os.path.getsize(LOG + '-2')], timed_out=yes.timed_out,
     constant=grown < 4096)
""")
    assert told == {
        "bytes": 200_000_000,
        "cut": [True, True],
        "code": 0,
        "kept": [1000, 1000],
        "timed_out": True,
        "constant": True,
    }


def test_output_of_exactly_the_cap_is_not_called_cut(driver: Driver) -> None:
    """The cap is reached, and nothing is missing."""
    told = driver.run("""
end = run('printf', '0123456789', kept=10)
tell(bytes=end.output_bytes, cut=end.truncated, log=logged())
""")
    assert told == {"bytes": 10, "cut": False, "log": "0123456789"}


def test_a_full_disk_stops_the_child(driver: Driver, token: str) -> None:
    """Output that cannot be written is our failure: the child is stopped, and it is said so."""
    told = driver.run(f"""
try:
    run('sh', '-c', 'yes {token}', log='/dev/full')
except RunnerError as error:
    tell(status=error.status, kind=type(error).__name__, left=clear().found >= 0)
""")
    assert told == {"status": 77, "kind": "StorageError", "left": True}
    assert not alive(token)


def test_the_time_limit_sends_term_first(driver: Driver) -> None:
    """A child that handles TERM ends by itself, and the limit is recorded beside its code."""
    told = driver.run(f"""
end = run('bash', '-c', 'trap "exit 3" TERM; sleep 50 & wait', timeout=0.5, grace=50)
clear()
{TELL_EXIT}
""")
    assert told == {"code": 3, "signal": None, "status": 3, "timed_out": True}


def test_ignored_term_is_followed_by_kill(driver: Driver) -> None:
    """A child that ignores TERM is killed after the grace."""
    told = driver.run(f"""
end = run('sh', '-c', 'trap "" TERM; while :; do sleep 0.1; done', timeout=0.3, grace=0.2)
clear()
{TELL_EXIT}
""")
    assert told == {"code": None, "signal": 9, "status": 137, "timed_out": True}


def test_a_stopped_child_does_not_outlive_the_time_limit(driver: Driver) -> None:
    """A child that stopped itself cannot answer TERM; KILL reaches it."""
    told = driver.run(
        f"end = run('sh', '-c', 'kill -STOP $$', timeout=0.3, grace=0.2)\n{TELL_EXIT}"
    )
    assert told == {"code": None, "signal": 9, "status": 137, "timed_out": True}


def test_orphans_are_reaped_and_do_not_take_the_status(driver: Driver) -> None:
    """500 orphans exit before the child: none stays a zombie, and its 7 stays 7."""
    told = driver.run(r"""
script = '''
import os, time
for _ in range(500):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(9)
    os.wait()
runner = os.getppid()
def children():
    return len(open(f"/proc/{runner}/task/{runner}/children").read().split())
end = time.monotonic() + 40
while children() > 1 and time.monotonic() < end:
    time.sleep(0.01)
print(children(), flush=True)
os._exit(7)
'''
end = run(sys.executable, '-I', '-c', script)
tell(code=end.code, log=logged(), found=clear().found)
""")
    assert told == {"code": 7, "log": "1\n", "found": 0}


def test_a_stolen_status_is_a_failure(driver: Driver) -> None:
    """Nobody saw how the child ended: neither code nor signal, and not the status 0."""
    told = driver.run(f"""
end = run('true', started=lambda process: os.waitpid(process.pid, 0))
{TELL_EXIT}
""")
    assert told == {"code": None, "signal": None, "status": 255, "timed_out": False}


def test_an_ignored_sigchld_does_not_lose_the_status(driver: Driver) -> None:
    """Whoever started the runner ignored SIGCHLD, with which the kernel drops every status."""
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    wrapper = (driver.interpreter, "-I", "-c", ignoring + "os.execv(sys.argv[1], sys.argv[1:])")
    assert (
        replace(driver, wrapper=wrapper).run(f"end = run('sh', '-c', 'exit 7')\n{TELL_EXIT}")[
            "code"
        ]
        == 7
    )


def test_a_child_gets_its_own_session_and_nothing_else(driver: Driver) -> None:
    """Own session, no terminal, no stdin, no descriptor but those passed, no foreign variable."""
    told = driver.run(r"""
lock = os.open(LOG + '-lock', os.O_RDWR | os.O_CREAT, 0o600)
os.set_inheritable(lock, True)  # what a careless library would leave open
passed = os.open('/dev/null', os.O_RDONLY)
script = '''
import json, os, sys
table = set(os.listdir("/proc/self/fd")) - {"3"}
try:
    os.open("/dev/tty", os.O_RDWR); terminal = True
except OSError:
    terminal = False
print(json.dumps([os.getsid(0) == os.getpid(), terminal, os.readlink("/proc/self/fd/0"),
    sorted(int(fd) for fd in table if os.path.exists("/proc/self/fd/" + fd)), dict(os.environ)]))
'''
run(sys.executable, '-I', '-S', '-c', script, env={'ONLY': 'this', 'LC_ALL': 'C.UTF-8'},
    pass_fds=(passed,))
tell(passed=passed, log=logged())
""")
    led, terminal, stdin, descriptors, variables = json.loads(told["log"])
    assert led
    assert not terminal
    assert stdin == "/dev/null"
    assert set(descriptors) - {3} == {0, 1, 2, told["passed"]}
    assert variables == {"ONLY": "this", "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("run('no-such-program')", "No such file or directory"),
        ("run('/etc/passwd')", "Permission denied"),
        ("run('true', cwd='/nowhere')", "/nowhere: expected a directory to run it in"),
        ("run('true', 'x' * 200_000)", "Argument list too long"),
        ("run('true', 'a\\0b')", "embedded null byte"),
    ],
)
def test_a_program_that_cannot_be_started_is_a_configuration_error(
    driver: Driver, call: str, shown: str
) -> None:
    """Nothing ran, nothing is left, and one line says what was wrong."""
    told = driver.run(f"""
try:
    {call}
except RunnerError as error:
    tell(status=error.status, text=str(error), left=clear().found)
""")
    assert told["status"] == 78
    assert shown in told["text"]
    assert told["left"] == 0


def test_a_child_whose_start_cannot_be_recorded_is_killed(driver: Driver, token: str) -> None:
    """The record of the start failed: the child does not run on without one."""
    told = driver.run(f"""
def refuse(process):
    raise MemoryError
try:
    run('sleep', '50.{token}', started=refuse)
except MemoryError:
    clear()
    tell(raised=True)
""")
    assert told == {"raised": True}
    assert not alive(token)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_to_the_runner_stops_the_child(
    driver: Driver, number: signal.Signals, token: str
) -> None:
    """The child is stopped and cleared, the signal is told, and nobody sees a traceback."""
    script = f"""
end = run('sh', '-c', 'sleep 50.{token} & sleep 51.{token}')
found = clear().found
tell(interrupted=end.interrupted, signal=end.signal, timed_out=end.timed_out)
"""
    with driver.started(script, stderr=subprocess.PIPE) as runner:
        wait_until(lambda: running("sleep", f"50.{token}") and running("sleep", f"51.{token}"))
        runner.send_signal(number)
        told, errors = runner.communicate(timeout=60)
    assert json.loads(told) == {"interrupted": number, "signal": 15, "timed_out": False}
    assert errors == ""
    assert not alive(token)


def test_a_pending_signal_keeps_the_child_from_starting(driver: Driver, tmp_path: Path) -> None:
    """The signal came before the start: not one instruction of the child runs."""
    told = driver.run(
        """
os.kill(os.getpid(), signal.SIGTERM)
end = run('touch', sys.argv[1], started=lambda process: tell(started=True))
tell(interrupted=end.interrupted, code=end.code)
""",
        str(tmp_path / "ran"),
    )
    assert told == {"interrupted": signal.SIGTERM, "code": None}
    assert not (tmp_path / "ran").exists()


def test_held_signals_wait_for_the_decision(driver: Driver) -> None:
    """From hold to release no signal is shown; afterwards the first one is."""
    told = driver.run("""
inbox.hold()
for number in (signal.SIGHUP, signal.SIGTERM):
    os.kill(os.getpid(), number)
hidden, end = inbox.pending, run('sh', '-c', 'exit 5')
inbox.release()
tell(hidden=hidden, code=end.code, shown=inbox.pending, taken=inbox.take(), again=inbox.take())
""")
    assert told == {"hidden": None, "code": 5, "shown": 1, "taken": [1, 15], "again": []}


def test_nohup_is_respected(driver: Driver) -> None:
    """SIGHUP that was ignored from the start stays so; SIGTERM is taken over all the same."""
    told = replace(driver, wrapper=("nohup",)).run(
        """
for number in (signal.SIGHUP, signal.SIGTERM):
    os.kill(os.getpid(), number)
tell(taken=inbox.take())
""",
        stderr=subprocess.PIPE,
    )
    assert told == {"taken": [15]}


def test_without_waitid_and_pidfd_a_child_is_run_and_its_group_killed(
    driver: Driver, token: str
) -> None:
    """As an older Python on macOS: status, time limit and the group hold; no more is claimed."""
    told = driver.run(f"""
import bootstrap.reaper
del os.waitid, os.pidfd_open
bootstrap.reaper.table_is_ours = lambda: False
sys.platform = 'darwin'
first = run('sh', '-c', 'sleep 50.{token} & echo done; exit 7')
second = run('sh', '-c', 'trap "" TERM; while :; do sleep 0.1; done', timeout=0.3, grace=0.2)
tell(codes=[first.code, second.code], signal=second.signal, timed_out=second.timed_out,
     log=logged(), level=clear().level)
""")
    assert told == {
        "codes": [7, None],
        "signal": 9,
        "timed_out": True,
        "log": "done\n",
        "level": "process-group",
    }
    wait_until(lambda: not alive(token))
