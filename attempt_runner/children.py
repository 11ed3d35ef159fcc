"""Start agent and scorer: words, environment, room and output; wait; clear what they leave."""

from __future__ import annotations

import os
import re
import secrets
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from attempt_runner.environment import child_environment
from attempt_runner.evidence import SEALED_DIFF, SEALED_PROMPT
from attempt_runner.exchange import PRIVATE, furnish
from attempt_runner.gate import refusal
from bootstrap.errors import Finding, IntegrityError, ProcessesRemainError, UnavailableError
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
    from pathlib import Path

    from attempt_runner.exchange import Room
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


def run_agent(trial: Trial, command: FrozenCommand) -> Exit:
    """Run the agent in the workspace, and prove that nothing of it is left: steps 7 and 8.

    Raises RefusalError: `processes` if something is left, `agent` for an exit that does not
    count as done. An interrupted agent is the caller's to judge.
    """
    job, workspace = trial.job, trial.ground.workspace.path
    room = _furnish(trial, "agent", {"prompt": SEALED_PROMPT}, job.agent_home_from)
    words = {
        "workspace": str(workspace),
        "prompt": str(room.inputs["prompt"]),
        "model": trial.identity.model_id,
    }
    told = {"MODEL_ID": words["model"], "PROMPT_FILE": words["prompt"]}
    role = Role(
        name="agent",
        command=command,
        words=words,
        environment=_environment(trial, room, job.agent_pass_env) | told,
        cwd=workspace,
        timeout=job.agent_timeout,
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
    room = _furnish(trial, "scorer", sealed, trial.job.scorer_home_from)
    with open_directory_beneath(trial.exchange, "scorer") as parent:
        directory = make_directory(parent, SCORE_DIRECTORY, PRIVATE)
    nonce = secrets.token_hex(16)
    score = directory.path if trial.job.score_file else directory.path / SCORE_NAME
    words = _scorer_words(trial, room, score, tree)
    role = Role(
        name="scorer",
        command=trial.identity.scorer,
        words=words,
        environment=_environment(trial, room, trial.job.scorer_pass_env)
        | _scorer_variables(trial, words, nonce),
        cwd=tree or room.root,
        timeout=trial.job.scorer_timeout,
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


def _scorer_words(trial: Trial, room: Room, score: Path, tree: Path | None) -> dict[str, str]:
    words = {
        "prompt": str(room.inputs["prompt"]),
        "diff": str(room.inputs["diff"]),
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


def _furnish(trial: Trial, name: str, sealed: Mapping[str, str], home_from: Path | None) -> Room:
    """Make a child's room with copies of files from the attempt's own directory."""
    opened: dict[str, int] = {}
    try:
        for file, source in sealed.items():
            opened[file] = open_regular(trial.directory, source)
        return furnish(trial.exchange, name, opened, home_from)
    finally:
        for fd in opened.values():
            os.close(fd)


def _environment(trial: Trial, room: Room, passed: tuple[str, ...]) -> dict[str, str]:
    path = search_path(trial.job.path_add)
    return child_environment(trial.environ, passed, path=path, home=room.home, tmp=room.tmp)


def _run_role(trial: Trial, role: Role) -> Exit:
    """Run one child, then clear everything that it left running, and log both.

    A scorer that finds no room after an agent ran is an IntegrityError: an agent that fills
    the machine must not buy another try.
    """
    child = Child(
        argv=replace_words(role.command.argv, role.words),
        cwd=role.cwd,
        env={**role.environment, MARKER_VARIABLE: trial.identity.marker},
        output=_open_output(trial, f"{role.name}.log"),
    )
    limits = Limits(role.timeout, trial.job.grace, OUTPUT_LIMIT)
    try:
        exited = run_child(
            child, limits, trial.inbox, lambda process: trial.remember_process(role.name, process)
        )
    except UnavailableError as error:
        if "agent" not in trial.identity.processes:
            raise
        raise IntegrityError(
            error.what, expected=error.expected, found=error.found, remedy="hold the machine"
        ) from error
    finally:
        os.close(child.output)
        cleared = _clear(role.name)
    if role.name not in trial.identity.processes:  # a signal came before its start
        return exited
    trial.log(
        f"{role.name}_exited",
        code=exited.code,
        signal=exited.signal,
        timed_out=exited.timed_out,
        output_bytes=exited.output_bytes,
        truncated=exited.truncated,
    )
    trial.log("processes_cleared", after=role.name, found=cleared.found, level=cleared.level)
    return exited


def _clear(name: str) -> Cleared:
    try:
        return clear_descendants(time.monotonic() + CLEAR_SECONDS)
    except ProcessesRemainError as error:
        found = Finding("processes", f"nothing of the {name} left", error.found)
        raise refusal([found]) from error


def _open_output(trial: Trial, name: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o600, dir_fd=trial.directory.fd)
    except OSError as error:
        raise storage_error(trial.directory.path / name, error) from error
