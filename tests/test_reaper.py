from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap import proctable
from bootstrap.pidfd import send_signal
from bootstrap.proctable import ProcessId, identify, read_process
from tests.drivers import BLIND_PID_1, PID_1, alive
from tests.machine import needs
from tests.someone import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.drivers import Driver

pytestmark = needs("linux")

NAMESPACE: Final = needs("pid-namespace")

# What a tree-killer must reach: in its group, in a session of its own, and without parent,
# environment or session.
TREE: Final = """\
sleep 50.{token} &
setsid sleep 51.{token} &
env -i setsid sh -c 'env -i setsid sleep 52.{token} & exit' &
while test "$(pgrep -c -x -f "sleep 5[012].{token}")" -lt 3; do sleep 0.01; done
"""


@pytest.mark.parametrize(
    ("wrapper", "level"),
    [
        pytest.param((), "subreaper"),
        pytest.param(PID_1, "pid-1", marks=NAMESPACE),
        pytest.param(BLIND_PID_1, "pid-1", marks=NAMESPACE),
    ],
)
def test_none_of_the_tree_is_alive(
    driver: Driver, token: str, wrapper: tuple[str, ...], level: str
) -> None:
    """Background, setsid and `env -i` double fork: all dead, also without a process table."""
    told = replace(driver, wrapper=wrapper).run(f"""
end = run('sh', '-c', '''{TREE.format(token=token)}''')
tell(code=end.code, level=clear().level)
""")
    assert told == {"code": 0, "level": level}
    assert not alive(f".{token}")


def test_the_living_are_counted(driver: Driver, token: str) -> None:
    """What had to be killed is counted; what had ended before is not."""
    told = driver.run(f"""
first = clear().found
run('sh', '-c', '''{TREE.format(token=token)}''')
tell(first=first, found=clear().found, again=clear().found)
""")
    assert told == {"first": 0, "found": 3, "again": 0}


def test_a_tree_that_only_the_scan_can_see_is_cleared(driver: Driver, token: str) -> None:
    """A kernel without `children` files: the whole table is read instead."""
    told = driver.run(f"""
from bootstrap import proctable
proctable._lister = proctable._children_by_scan
run('sh', '-c', '''{TREE.format(token=token)}''')
tell(found=clear().found)
""")
    assert told == {"found": 3}
    assert not alive(f".{token}")


def test_both_ways_to_list_children_agree() -> None:
    """The children files and the scan of the table name the same processes."""
    with subprocess.Popen(["sleep", "50"]) as child:
        by_file = set(proctable._children_by_file(os.getpid()))
        by_scan = set(proctable._children_by_scan()(os.getpid()))
        child.kill()
    assert child.pid in by_file
    assert by_file == by_scan


FORKER: Final = """
import os, signal, sys, time
end = time.time() + 30
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, go = os.pipe()
for _ in range(300):
    if os.fork() == 0:
        os.close(go)
        os.read(ready, 1)
        {fork}
        os._exit(0)
print("up", flush=True)
"""
FORK: Final = {
    "children": """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while time.time() < end:
            if os.fork() == 0:
                os._exit(0)
""",
    "chain": """
        os.setsid()
        while time.time() < end:
            if os.fork():
                os._exit(0)
""",
    "chain of sessions": """
        while time.time() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
""",
}


@pytest.mark.parametrize("way", FORK)
def test_300_forkers_are_cleared(driver: Driver, way: str) -> None:
    """300 processes that fork for ever, also each fleeing into its child, are all dead."""
    if way == "chain of sessions" and os.geteuid() != 0:
        pytest.skip("machine lacks: CAP_SYS_NICE, without which these win the processor")
    script = FORKER.replace("{fork}", FORK[way].strip())
    told = driver.run(f"""
end = run(sys.executable, '-I', '-S', '-c', {script!r})
tell(code=end.code, log=logged(), many=clear().found >= 100, again=clear().found)
""")
    assert told == {"code": 0, "log": "up\n", "many": True, "again": 0}


def test_a_child_forked_on_term_is_cleared(driver: Driver, token: str) -> None:
    """The agent answers TERM by starting another process, and dies."""
    told = driver.run(f"""
script = 'trap "setsid sleep 50.{token} & exit 0" TERM; while :; do sleep 0.05; done'
end = run('bash', '-c', script, timeout=0.5, grace=30)
tell(code=end.code, found=clear().found > 0)
""")
    assert told == {"code": 0, "found": True}
    assert not alive(f"50.{token}")


def test_nothing_writes_after_the_tree_is_cleared(driver: Driver, tmp_path: Path) -> None:
    """A detached loop rewrites the score all the time; once cleared, the file stands still."""
    score = tmp_path / "score"
    told = driver.run(
        """
loop = 'n=0; while :; do n=$((n+1)); echo $n > "$0"; done'
run('sh', '-c', 'setsid sh -c "$1" "$0" & sleep 0.3', sys.argv[1], loop)
clear()
first = os.stat(sys.argv[1]).st_mtime_ns
time.sleep(0.3)
tell(still=os.stat(sys.argv[1]).st_mtime_ns == first)
""",
        str(score),
    )
    assert told == {"still": True}


def test_a_stopped_process_is_cleared(driver: Driver, token: str) -> None:
    """SIGSTOP does not save a process from being killed."""
    told = driver.run(f"""
run('sh', '-c', 'sleep 50.{token} & kill -STOP $!')
tell(found=clear().found)
""")
    assert told == {"found": 1}
    assert not alive(f"50.{token}")


def test_a_passed_deadline_is_an_integrity_error(driver: Driver) -> None:
    """No proof by the deadline is not reported as clean, though the signals were sent."""
    told = driver.run("""
run('sh', '-c', 'sleep 50 & sleep 51 &')
try:
    clear(seconds=-1)
except RunnerError as error:
    tell(status=error.status, kind=type(error).__name__, named='pid ' in str(error))
clear()
""")
    assert told == {"status": 77, "kind": "ProcessesRemainError", "named": True}


def test_children_from_before_are_refused() -> None:
    """A shell handed over its background job by `exec`: killing it later would be a surprise."""
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from bootstrap.reaper import guard_runner
try:
    guard_runner()
except Exception as error:
    print(error)
"""
    handing_over = ("bash", "-c", 'sleep 5 & exec "$@"', "bash")
    argv = [*handing_over, sys.executable, "-I", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    assert line.startswith("processes of the runner: expected no child at start, got at least")


def test_a_group_of_our_own_session_is_not_killed(driver: Driver) -> None:
    """An orphan in the caller's session is reaped, and the caller's group lives on."""
    told = driver.run("""
import subprocess
subprocess.run(['sh', '-c', '(exit 0) & sleep 50 & '], check=True)
time.sleep(0.2)
tell(found=clear().found)
""")
    assert told == {"found": 1}


def test_a_reused_pid_is_not_signalled() -> None:
    """The pid is alive, but started at another time: it is a stranger."""
    with subprocess.Popen(["sleep", "50"]) as child:
        real = identify(child.pid)
        with pytest.raises(ProcessLookupError):
            send_signal(ProcessId(real.pid, real.start_ticks + 1), signal.SIGKILL)
        assert child.poll() is None
        send_signal(real, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        send_signal(real, signal.SIGKILL)


def test_a_name_with_parentheses_does_not_confuse_the_table(tmp_path: Path) -> None:
    """A process may call itself `) Z 1 1 1`: its state and parent are read all the same."""
    program = tmp_path / ") Z 1 1 1 ("
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "50"]) as child:
        process = read_process(child.pid)
        child.kill()
    assert process is not None
    assert process.alive
    assert process.parent == os.getpid()


def test_a_plain_user_cannot_look_into_the_guarded_runner(plain_driver: Driver) -> None:
    """Memory, environment and descriptors of the runner are closed to its own uid."""
    told = plain_driver.run("""
probe = '''
import os
def opens(name):
    try:
        os.close(os.open(f"/proc/{os.getppid()}/{name}", os.O_RDONLY))
    except PermissionError:
        return False
    return True
print([opens(name) for name in ("mem", "environ", "fd", "maps")])
'''
end = run(sys.executable, '-I', '-S', '-c', probe)
tell(root=os.getuid() == 0, log=logged(), code=end.code)
""")
    assert told == {"root": False, "log": "[False, False, False, False]\n", "code": 0}


def test_the_guarded_runner_still_clears_as_a_plain_user(plain_driver: Driver, token: str) -> None:
    """A runner that may not be dumped can read its own children and kill its tree."""
    told = plain_driver.run(f"""
run('sh', '-c', '''{TREE.format(token=token)}''')
tell(root=os.getuid() == 0, found=clear().found)
""")
    assert told == {"root": False, "found": 3}
    assert not alive(f".{token}")
