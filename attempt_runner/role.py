"""Run one child of an attempt: enclosed, logged, limited; then clear what it leaves."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from attempt_runner.gate import refusal
from attempt_runner.isolate import enclose
from attempt_runner.status import Start, status_pipe
from bootstrap.cells import open_cell
from bootstrap.errors import (
    Finding,
    IntegrityError,
    IsolationError,
    ProcessesRemainError,
    UnavailableError,
    shown,
)
from bootstrap.files import storage_error
from bootstrap.prepare import not_yet_started
from bootstrap.processes import MARKER_VARIABLE, Child, Exit, Limits, run_child
from bootstrap.reaper import clear_descendants

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from attempt_runner.enclosure import Enclosure
    from attempt_runner.isolate import Room
    from attempt_runner.trial import Trial
    from bootstrap.errors import RefusalError
    from bootstrap.freeze import FrozenCommand
    from bootstrap.reaper import Cleared

OUTPUT_LIMIT: Final = 16 * 1024 * 1024  # bytes of output kept for each child
CLEAR_SECONDS: Final = 30.0  # for killed processes to be reaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One child of an attempt: `name` is agent or scorer; its words are not yet replaced."""

    name: str
    command: FrozenCommand
    words: Mapping[str, str]
    environment: Mapping[str, str]
    cwd: Path
    timeout: float
    enclosure: Enclosure
    room: Room


def replace_words(argv: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    """Put the values of `{word}`s inside the arguments, in one pass.

    A brace that holds no known word stays as it is, and a value is never looked at again.
    """
    pattern = re.compile("{(" + "|".join(map(re.escape, words)) + ")}")
    return tuple(pattern.sub(lambda match: words[match[1]], word) for word in argv)


def run_role(trial: Trial, role: Role) -> Exit:
    """Run one child, then clear everything that it left running, and log both.

    Raises RefusalError `processes` if something is left, IsolationError if the child could
    not be enclosed, and IntegrityError for a scorer that finds no room after an agent ran: an
    agent that fills the machine must not buy another try.
    """
    with not_yet_started() if role.name == "agent" else nullcontext():
        output = _open_output(trial, f"{role.name}.log")
    try:
        exited, start = _run_enclosed(trial, role, output)
    except ProcessesRemainError as error:
        raise _remains(role, error) from error
    except UnavailableError as error:
        if "agent" not in trial.identity.processes:
            raise
        raise IntegrityError(
            error.what, expected=error.expected, found=error.found, remedy="hold the machine"
        ) from error
    finally:
        os.close(output)
        cleared, left = _clear(role)
    if role.name not in trial.identity.processes:  # a signal came before its start
        return exited
    if start.proof == "no":
        raise _not_enclosed(role, start)
    if start.proof == "unknown":
        exited = replace(exited, code=None)
    trial.log(
        f"{role.name}_exited",
        code=exited.code,
        signal=exited.signal,
        timed_out=exited.timed_out,
        output_bytes=exited.output_bytes,
        truncated=exited.truncated,
    )
    trial.log(
        "processes_cleared",
        after=role.name,
        found=cleared.found,
        left=list(map(shown, left)),
        level=role.enclosure.isolation.cleanup,
    )
    return exited


def _run_enclosed(trial: Trial, role: Role, output: int) -> tuple[Exit, Start]:
    argv = replace_words(role.command.argv, role.words)
    limits = Limits(role.timeout, trial.job.grace, OUTPUT_LIMIT)
    with _cell(trial, role) as cell, status_pipe() as status:
        room = replace(role.room, cgroup=cell)
        launch = enclose(role.enclosure.isolation, room, argv, status.ends)
        child = Child(
            argv=launch.argv,
            cwd=role.cwd,
            env={**role.environment, MARKER_VARIABLE: trial.identity.marker},
            output=output,
            pass_fds=launch.pass_fds,
        )
        exited = run_child(
            child, limits, trial.inbox, lambda process: trial.remember_process(role.name, process)
        )
        # Whoever was stopped from outside had no chance to report.
        if exited.interrupted is not None or exited.timed_out:
            return exited, Start("yes")
        return exited, status.outcome(launch, exited.code)


def _cell(trial: Trial, role: Role) -> AbstractContextManager[Path | None]:
    if role.enclosure.isolation.tier == "none":
        return nullcontext()
    return open_cell(f"{trial.identity.marker}-{role.name}")


def _not_enclosed(role: Role, start: Start) -> IsolationError:
    return IsolationError(
        f"isolation: {role.enclosure.isolation.tier}",
        expected=f"the {role.name} to be started in it",
        found=start.cause,
        remedy="see `attempt-runner doctor`",
    )


def _clear(role: Role) -> tuple[Cleared, tuple[str, ...]]:
    """Kill what is left of a child, and remove what its user left: step 8."""
    try:
        cleared = clear_descendants(time.monotonic() + CLEAR_SECONDS)
        return cleared, role.enclosure.tenant.clear() if role.enclosure.tenant else ()
    except ProcessesRemainError as error:
        raise _remains(role, error) from error


def _remains(role: Role, error: ProcessesRemainError) -> RefusalError:
    return refusal([Finding("processes", f"nothing of the {role.name} left", error.found)])


def _open_output(trial: Trial, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=trial.directory.fd)
    except OSError as error:
        raise storage_error(trial.directory.path / name, error) from error


def describe(exited: Exit) -> str:
    """Say in a few words how a child ended."""
    if exited.timed_out:
        return "the time limit"
    if exited.signal is not None:
        return f"signal {exited.signal} ({signal.strsignal(exited.signal)})"
    return "an unknown status" if exited.code is None else f"exit code {exited.code}"
