"""Start agent and scorer: words, environment, room and output; wait; clear what they leave."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from attempt_runner.cells import open_cell
from attempt_runner.environment import child_environment
from attempt_runner.evidence import SEALED_DIFF, SEALED_PROMPT
from attempt_runner.exchange import PRIVATE, furnish, give, give_tree
from attempt_runner.gate import refusal
from attempt_runner.isolate import enclose
from attempt_runner.status import Start, status_pipe
from bootstrap.errors import (
    Finding,
    IntegrityError,
    IsolationError,
    ProcessesRemainError,
    UnavailableError,
    shown,
)
from bootstrap.files import (
    Directory,
    make_directory,
    open_directory_beneath,
    open_regular,
    storage_error,
)
from bootstrap.freeze import changed_files, search_path
from bootstrap.processes import MARKER_VARIABLE, Child, Exit, Limits, run_child
from bootstrap.reaper import clear_descendants

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from attempt_runner.enclosure import Enclosure
    from attempt_runner.exchange import OwnRoom
    from attempt_runner.isolate import Room
    from attempt_runner.trial import Trial
    from bootstrap.freeze import FrozenCommand
    from bootstrap.reaper import Cleared

OUTPUT_LIMIT: Final = 16 * 1024 * 1024  # bytes of output kept for each child
CLEAR_SECONDS: Final = 30.0  # for killed processes to be reaped
SCORE_DIRECTORY: Final = "score"
SCORE_NAME: Final = "score"


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


@dataclass(frozen=True, slots=True)
class Scored:
    """How the scorer ended, where it was to leave its score, and the nonce it was given."""

    exited: Exit
    directory: Directory
    nonce: str


def replace_words(argv: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    """Put the values of `{word}`s inside the arguments, in one pass.

    A brace that holds no known word stays as it is, and a value is never looked at again.
    """
    pattern = re.compile("{(" + "|".join(map(re.escape, words)) + ")}")
    return tuple(pattern.sub(lambda match: words[match[1]], word) for word in argv)


def run_agent(trial: Trial, command: FrozenCommand, enclosure: Enclosure) -> Exit:
    """Run the agent in the workspace, and prove that nothing of it is left: steps 7 and 8.

    Raises RefusalError: `processes` if something is left, `agent` for an exit that does not
    count as done. An interrupted agent is the caller's to judge.
    """
    job, workspace = trial.job, trial.ground.workspace.path
    own = _furnish(trial, "agent", {"prompt": SEALED_PROMPT}, job.agent_home_from, enclosure)
    words = {
        "workspace": str(workspace),
        "prompt": str(own.inputs["prompt"]),
        "model": trial.identity.model_id,
    }
    told = {"MODEL_ID": words["model"], "PROMPT_FILE": words["prompt"]}
    role = Role(
        name="agent",
        command=command,
        words=words,
        environment=_environment(trial, own, job.agent_pass_env) | told,
        cwd=workspace,
        timeout=job.agent_timeout,
        enclosure=enclosure,
        room=_reach(enclosure, own),
    )
    exited = _run_role(trial, role)
    if exited.interrupted is None and not _is_done(exited, job.agent_exit_codes):
        codes = " or ".join(map(str, job.agent_exit_codes))
        raise refusal([Finding("agent", f"exit code {codes}", describe(exited))])
    return exited


def run_scorer(trial: Trial, tree: Path | None) -> Scored:
    """Run the scorer on the sealed copies alone, and prove that nothing of it is left.

    Steps 11 and the first half of 12. Raises RefusalError: `scorer` if a file of its command
    changed since it was frozen, `processes` if something of it is left.
    """
    if changed := changed_files(trial.identity.scorer):
        raise refusal(changed)
    sealed = {"prompt": SEALED_PROMPT, "diff": SEALED_DIFF}
    enclosure = trial.enclosures.scorer
    own = _furnish(trial, "scorer", sealed, trial.job.scorer_home_from, enclosure)
    with open_directory_beneath(trial.exchange, "scorer") as parent:
        directory = make_directory(parent, SCORE_DIRECTORY, PRIVATE)
    give(directory, enclosure.user)
    if tree and trial.job.tree_writable:
        give_tree(tree, enclosure.user)
    nonce = secrets.token_hex(16)
    score = directory.path if trial.job.score_file else directory.path / SCORE_NAME
    words = _scorer_words(trial, own, score, tree)
    role = Role(
        name="scorer",
        command=trial.identity.scorer,
        words=words,
        environment=_environment(trial, own, trial.job.scorer_pass_env)
        | _scorer_variables(trial, words, nonce),
        cwd=tree or own.root,
        timeout=trial.job.scorer_timeout,
        enclosure=enclosure,
        room=_scorer_reach(trial, own, directory.path, tree),
    )
    return Scored(_run_role(trial, role), directory, nonce)


def describe(exited: Exit) -> str:
    """Say in a few words how a child ended."""
    if exited.timed_out:
        return "the time limit"
    if exited.signal is not None:
        return f"signal {exited.signal} ({signal.strsignal(exited.signal)})"
    return "an unknown status" if exited.code is None else f"exit code {exited.code}"


def _is_done(exited: Exit, codes: tuple[int, ...]) -> bool:
    return not exited.timed_out and exited.signal is None and exited.code in codes


def _scorer_words(trial: Trial, own: OwnRoom, score: Path, tree: Path | None) -> dict[str, str]:
    words = {
        "prompt": str(own.inputs["prompt"]),
        "diff": str(own.inputs["diff"]),
        "score": str(score),
        "model": trial.identity.model_id,
        "generation": trial.identity.generation,
        "attempt": trial.identity.attempt_id,
    }
    if tree is not None:
        words["tree"] = str(tree)
    if trial.job.scorer_reads_workspace:
        words["workspace"] = str(trial.ground.workspace.path)
    return words


def _scorer_variables(trial: Trial, words: Mapping[str, str], nonce: str) -> dict[str, str]:
    sealed = trial.sealed
    variables = {
        "MODEL_ID": words["model"],
        "WORKSPACE_GEN": words["generation"],
        "ATTEMPT_ID": words["attempt"],
        "PROMPT_FILE": words["prompt"],
        "DIFF_FILE": words["diff"],
        "DIFF_SHA256": sealed["diff_sha256"],
        "PROMPT_SHA256": sealed["prompt_sha256"],
    }
    if "tree" in words:
        variables["TREE_DIR"] = words["tree"]
    # A tool of another format runs the patch: it must not find where the score goes.
    if trial.job.score_format == "score-json":
        variables |= {"SCORE_FILE": words["score"], "SCORE_NONCE": nonce}
    return variables


def _reach(enclosure: Enclosure, own: OwnRoom) -> Room:
    """Return what a child may touch, with what was made for this attempt."""
    room = enclosure.room
    return replace(
        room,
        writable=(*room.writable, own.home, own.tmp),
        readable=(*room.readable, own.root),
    )


def _scorer_reach(trial: Trial, own: OwnRoom, score: Path, tree: Path | None) -> Room:
    room = _reach(trial.enclosures.scorer, own)
    writable, readable = (*room.writable, score), room.readable
    if tree is not None and trial.job.tree_writable:
        writable = (*writable, tree)
    elif tree is not None:
        readable = (*readable, tree)
    return replace(room, writable=writable, readable=readable)


def _furnish(
    trial: Trial,
    name: str,
    sealed: Mapping[str, str],
    home_from: Path | None,
    enclosure: Enclosure,
) -> OwnRoom:
    """Make a child's own room with copies of files from the attempt's directory."""
    opened: dict[str, int] = {}
    try:
        for file, source in sealed.items():
            opened[file] = open_regular(trial.directory, source)
        return furnish(trial.exchange, name, opened, home_from, enclosure.user)
    finally:
        for fd in opened.values():
            os.close(fd)


def _environment(trial: Trial, own: OwnRoom, passed: tuple[str, ...]) -> dict[str, str]:
    path = search_path(trial.job.path_add)
    return child_environment(trial.environ, passed, path=path, home=own.home, tmp=own.tmp)


def _run_role(trial: Trial, role: Role) -> Exit:
    """Run one child, then clear everything that it left running, and log both.

    A scorer that finds no room after an agent ran is an IntegrityError: an agent that fills
    the machine must not buy another try.
    """
    output = _open_output(trial, f"{role.name}.log")
    try:
        exited, start = _run_enclosed(trial, role, output)
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
    with _cell(role.enclosure) as cell, status_pipe() as status:
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


def _cell(enclosure: Enclosure) -> AbstractContextManager[Path | None]:
    return nullcontext() if enclosure.isolation.tier == "none" else open_cell()


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
        found = Finding("processes", f"nothing of the {role.name} left", error.found)
        raise refusal([found]) from error


def _open_output(trial: Trial, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=trial.directory.fd)
    except OSError as error:
        raise storage_error(trial.directory.path / name, error) from error
