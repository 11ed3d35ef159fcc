"""The two children of an attempt: what agent and scorer are told, given, and may touch."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from attempt_runner.environment import child_environment
from attempt_runner.evidence import SEALED_DIFF, SEALED_PROMPT
from attempt_runner.exchange import PRIVATE, furnish, give, give_tree
from attempt_runner.gate import refusal
from attempt_runner.role import Role, describe, run_role
from bootstrap.errors import Finding
from bootstrap.files import Directory, make_directory, open_directory_beneath, open_regular
from bootstrap.freeze import changed_files, search_path
from bootstrap.prepare import not_yet_started

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attempt_runner.enclosure import Enclosure
    from attempt_runner.exchange import OwnRoom
    from attempt_runner.isolate import Room
    from attempt_runner.trial import Trial
    from bootstrap.freeze import FrozenCommand
    from bootstrap.processes import Exit

SCORE_DIRECTORY: Final = "score"
SCORE_NAME: Final = "score"


@dataclass(frozen=True, slots=True)
class Scored:
    """How the scorer ended, where it was to leave its score, and the nonce it was given."""

    exited: Exit
    directory: Directory
    nonce: str


def run_agent(trial: Trial, command: FrozenCommand, enclosure: Enclosure) -> Exit:
    """Run the agent in the workspace, and prove that nothing of it is left: steps 7 and 8.

    Raises RefusalError: `processes` if something is left, `agent` for an exit that does not
    count as done. UnavailableError where our own files could not be written before its start.
    An interrupted agent is the caller's to judge.
    """
    job, workspace = trial.job, trial.ground.workspace.path
    with not_yet_started():
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
    exited = run_role(trial, role)
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
    return Scored(run_role(trial, role), directory, nonce)


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
