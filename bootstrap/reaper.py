"""The one owner of waiting: reap orphans, kill what is left, and prove that nothing is.

The proof is the kernel's: with every orphan adopted by us (a subreaper, or PID 1), a wait
that answers ECHILD says that no descendant is left. That a signal was sent proves nothing.
The process has one thread that waits, and no children beside those of the attempt.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError, IsolationError, ProcessesRemainError
from bootstrap.pidfd import send_signal
from bootstrap.proctable import ProcessId, children_of, descendants_below, table_is_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
# wait(2): also children whose exit sends no SIGCHLD.
_WALL: Final = 0x40000000 if sys.platform == "linux" else 0
_BATCH: Final = 256  # children reaped before anything else gets its turn
_PAUSE: Final = 0.001  # seconds between two rounds of killing: a dying process needs some


@dataclass(frozen=True, slots=True)
class Cleared:
    """How many living descendants had to be killed, and what the proof rests on.

    `level` is `pid-1` or `subreaper`: no descendant is left; or `process-group`: nothing is
    known about descendants that left the group (no subreaper off Linux).
    """

    found: int
    level: str


def guard_runner() -> None:
    """Adopt orphans, and deny memory, environment and ptrace to others of the same uid.

    Call it once, before the first child. Does nothing off Linux. Raises ConfigurationError
    if there is a child already, which clearing would kill: a shell that starts a process,
    then execs the runner, hands it over. To PID 1 all of its namespace belongs anyway.
    Source: PR_SET_CHILD_SUBREAPER(2const), PR_SET_DUMPABLE(2const).
    """
    if sys.platform != "linux":
        return
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    while reap_orphans(keep=0):
        continue
    if _has_child() and os.getpid() != 1:
        raise ConfigurationError(
            "processes of the runner",
            expected="no child at start",
            found="at least one",
            remedy="start the runner without `exec` from a shell that has background jobs",
        )


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), *[ctypes.c_ulong(0)] * 3) != 0:
        raise IsolationError(
            f"prctl option {option}",
            expected="the kernel to allow it",
            found=os.strerror(ctypes.get_errno()),
            remedy="allow prctl in the container's syscall filter",
        )


def cleanup_level() -> str:
    """Return what a cleared tree rests on here: see `Cleared`."""
    if os.getpid() == 1:
        return "pid-1"
    if sys.platform != "linux":
        return "process-group"
    adopts = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return "subreaper" if adopts.value else "process-group"


def reap_orphans(keep: int) -> bool:
    """Reap every child that has exited, but for `keep`, whose status stays to be collected.

    Stops early when `keep` itself has exited, and after a batch: processes that fork and
    exit for ever must not keep the caller from its time limit. True if more may wait.
    """
    with suppress(ChildProcessError):
        for _ in range(_BATCH):
            if (pid := _next_exited()) in {0, keep}:
                return False
            os.waitpid(pid, _WALL)
        return True
    return False


def has_exited(pid: int) -> bool:
    """Tell whether a child has exited, leaving its status, and so its pid, in place.

    Raises ChildProcessError if it is no child of ours, or was reaped.
    """
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL) is not None


def _next_exited() -> int:
    """Return a child that waits to be reaped, 0 if there is none yet.

    Raises ChildProcessError if there is no child. Where Python has no waitid (macOS before
    3.13) no orphan is adopted either: there is at most the child that `keep` names.
    """
    if not hasattr(os, "waitid"):
        return 0
    exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
    return exited.si_pid if exited else 0


def clear_descendants(deadline: float) -> Cleared:
    """Kill every descendant and reap it; return once the kernel knows of no child.

    `deadline` is an instant of `time.monotonic()`. All are stopped before any is killed, and
    all of it is repeated: a child forked by a dying process is adopted and met in the next
    round. Raises ProcessesRemainError when the deadline passes first.
    """
    found: set[int] = set()
    if _has_child():
        with _first_in_line():
            _kill_until_none(deadline, found)
    return Cleared(len(found), cleanup_level())


def _kill_until_none(deadline: float, found: set[int]) -> None:
    while _has_child():
        living = _kill_all() if table_is_ours() else _kill_blindly()
        found.update(living)
        if time.monotonic() >= deadline:
            raise _remain(living)
        time.sleep(_PAUSE)


@contextmanager
def _first_in_line() -> Iterator[None]:
    """Run before all ordinary processes, where that is allowed (CAP_SYS_NICE).

    Hundreds of forkers, each in a session and so a scheduling group of its own, leave the
    runner a hundredth of a processor: measured, they are replaced faster than it kills.
    """
    try:
        policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):  # not allowed; not on macOS
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _has_child() -> bool:
    """Ask the kernel whether any child is left, dead or alive."""
    try:
        if hasattr(os, "waitid"):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
        else:
            os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _kill_all() -> list[int]:
    """Stop all descendants, reap the dead, kill the others; return the pids of these."""
    children = children_of(os.getpid())
    _signal_children(children, signal.SIGSTOP)
    living = [pid for pid in children if not _reap_with_group(pid)]
    deeper = [process.id for process in descendants_below(living) if process.alive]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        _signal_others(deeper, number)
    # Last: the death of a parent can set a stopped child going again (setpgid(2)).
    _signal_children(living, signal.SIGKILL)
    return living + [process.pid for process in deeper]


def _reap_with_group(pid: int) -> bool:
    """Reap a child if it has exited, having killed its group; tell whether it had.

    One call of the kernel reaches all of a group at once, also a chain of processes that
    fork and exit faster than they can be listed. A dead process cannot leave its group, so
    the number is not another's. Our own session may hold our caller: it is not touched. A
    group outside our pid namespace has the number 0, which would mean our own.
    """
    if not has_exited(pid):
        return False
    group = os.getpgid(pid)
    if group and os.getsid(pid) != os.getsid(0):
        with suppress(PermissionError):
            os.killpg(group, signal.SIGKILL)
    os.waitpid(pid, _WALL)
    return True


def _kill_blindly() -> list[int]:
    """Kill without a table: only PID 1 may, since all of its namespace is its tree."""
    if os.getpid() == 1:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    reap_orphans(keep=0)
    return []


def _signal_children(children: list[int], number: signal.Signals) -> None:
    for pid in children:  # nobody but us reaps them, so no pid has passed to another
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_others(targets: list[ProcessId], number: signal.Signals) -> None:
    for target in targets:
        with suppress(OSError):  # gone, not allowed, or no pidfd: the next round meets it
            send_signal(target, number)


def _remain(living: list[int]) -> ProcessesRemainError:
    return ProcessesRemainError(
        "processes",
        expected="none left",
        found=", ".join(f"pid {pid}" for pid in living[:8]) or "a child",
        remedy="hold the machine and look for what keeps them",
    )
