"""Drivers: small programs that use our process code, each in a process of its own.

What they do - adopt orphans, kill all descendants, take over signals - must never happen in
the process that runs the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.someone import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE: Final = 60.0  # seconds until a test calls something hung

# `run` runs one child as an attempt does; a script prints what its test wants to know.
PRELUDE: Final = f"""\
import json, os, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from bootstrap.signals import SignalInbox
inbox = SignalInbox()
inbox.install()
from bootstrap.errors import RunnerError
from bootstrap.processes import MARKER_VARIABLE, Child, Limits, run_child
from bootstrap.reaper import clear_descendants, guard_runner

PATH = {os.defpath!r} + ":/usr/local/bin:/usr/bin:/bin"
LOG = os.path.abspath("child.log")

def run(*argv, timeout=50.0, grace=0.5, kept=1 << 20, cwd="/", env=None, log=LOG,
        started=lambda process: None, pass_fds=()):
    output = os.open(log, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    child = Child(argv, Path(cwd), {{"PATH": PATH}} if env is None else env, output, pass_fds)
    try:
        return run_child(child, Limits(timeout, grace, kept), inbox, started)
    finally:
        os.close(output)

def logged():
    return Path(LOG).read_bytes().decode()

def clear(seconds=30.0):
    return clear_descendants(time.monotonic() + seconds)

def tell(**facts):
    print(json.dumps(facts), flush=True)

guard_runner()
"""


@dataclass(frozen=True, slots=True)
class Driver:
    """How to start drivers: where, by what command, with which interpreter."""

    directory: Path
    wrapper: tuple[str, ...] = ()
    interpreter: str = sys.executable

    @contextmanager
    def started(self, script: str, *args: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Start a driver whose standard output is a pipe; kill it at the end."""
        argv = [*self.wrapper, self.interpreter, "-I", "-c", PRELUDE + script, *args]
        with subprocess.Popen(
            argv, cwd=self.directory, stdout=subprocess.PIPE, text=True, **options
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, script: str, *args: str, **options: Any) -> Any:
        """Run a driver to its end; return what it told."""
        with self.started(script, *args, **options) as process:
            told, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return json.loads(told)


PID_1: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
BLIND_PID_1: Final = ("unshare", "--pid", "--fork", "--kill-child")  # /proc is another's


def alive(token: str) -> list[int]:
    """Return the living processes whose command line or environment holds `token`."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _has(pid, token)]


def _has(pid: int, token: str) -> bool:
    texts = b""
    with suppress(OSError):
        texts = Path(f"/proc/{pid}/cmdline").read_bytes()
        texts += Path(f"/proc/{pid}/environ").read_bytes()
    return token.encode() in texts


def running(*argv: str) -> list[int]:
    """Return the processes that run exactly this command line."""
    line = b"".join(word.encode() + b"\0" for word in argv)
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == line:
                found.append(int(pid))
    return found


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for something that must happen, without a claim on how soon."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def kill(pids: Sequence[int]) -> None:
    """Clean up after a test that left processes on purpose."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
