"""Bootstrap a workspace: lock, sweep, mint, wipe, freeze - before any agent process."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bootstrap.errors import (
    ConfigurationError,
    InterruptedRunError,
    StorageError,
    UnavailableError,
    UnsafeFileError,
    shown,
)
from bootstrap.files import Directory, make_directory, open_directory, open_directory_beneath
from bootstrap.identity import command_to_json
from bootstrap.joblog import JobLog
from bootstrap.live import open_live, path_to_json
from bootstrap.seal import seal
from bootstrap.state import (
    Frozen,
    Generation,
    State,
    lock,
    mint_generation,
    open_state,
    write_generation,
)
from bootstrap.sweep import sweep
from bootstrap.wipe import wipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from bootstrap.files import AgentPath
    from bootstrap.freeze import FrozenCommand
    from bootstrap.live import LivePath
    from bootstrap.lock import HeldLock
    from bootstrap.signals import SignalInbox

FROZEN_DIRECTORY: Final = "frozen"
FROZEN_PROMPT: Final = "prompt"
WAITING: Final = ("the workspace lock", "to be waited for", "start again")


@dataclass(frozen=True, slots=True)
class Ground:
    """A workspace that is locked: its private state, its open descriptor, its log."""

    state: State
    workspace: Directory
    log: JobLog
    lock: HeldLock


@dataclass(frozen=True, slots=True)
class StateRoot:
    """Where the state directories lie, and whether the operator chose that place."""

    path: Path
    named: bool


@dataclass(frozen=True, slots=True)
class ScorePaths:
    """Where a score could be planted; `empty_mounts` empties one that is a mount in place."""

    paths: tuple[AgentPath, ...]
    empty_mounts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a bootstrap is asked for: trusted values, every path placed.

    `prompt` and `scorer` are None where the attempt freezes them later. `guarded` are the
    workspace paths of diff, prompt and scorer, which no score path may touch.
    `starts_agent` says that a diff in the workspace cannot be of this life of it yet.
    """

    model_id: str
    score_paths: ScorePaths
    guarded: tuple[AgentPath, ...]
    prompt: LivePath | None
    diff: LivePath | None
    scorer: FrozenCommand | None
    config_sha256: str | None
    starts_agent: bool
    strict: bool


@contextmanager
def hold_workspace(
    workspace: Path,
    root: StateRoot,
    *,
    wait: float,
    inbox: SignalInbox,
    create: bool = True,
) -> Iterator[Ground]:
    """Open the workspace once and hold its lock: step 1 of an attempt.

    Raises ConfigurationError, TamperedStateError, LockHeldError after `wait` seconds, or
    InterruptedRunError for a signal that asks to stop meanwhile.
    """
    with (
        open_state(workspace, root.path, create=create, named=root.named) as state,
        lock(state, wait, lambda: stop_if_asked(inbox.pending, *WAITING)) as held,
        _open_workspace(state.workspace) as opened,
    ):
        yield Ground(state, opened, JobLog(state.directory), held)


def stop_if_asked(
    number: int | None, what: str, expected: str, remedy: str = "start again: a new attempt"
) -> None:
    """Raise InterruptedRunError for a signal, `number`, that asks the runner to stop."""
    if number is not None:
        found = f"signal {number}"
        raise InterruptedRunError(what, expected=expected, found=found, remedy=remedy)


@contextmanager
def not_yet_started() -> Iterator[None]:
    """Turn a failed write of ours into 75: no agent has run its first instruction."""
    try:
        yield
    except StorageError as error:
        raise UnavailableError(
            error.what,
            expected=error.expected,
            found=error.found,
            remedy="free space, then start again",
        ) from error


def prepare(ground: Ground, plan: Plan, baseline: Callable[[], Mapping[str, object]]) -> Generation:
    """Mint a generation of a held workspace and put it in force: steps 2 to 5 of an attempt.

    `baseline` records the workspace as it is after the wipe, and returns what the log says
    of it. Raises WipeError, LogChainError, TamperedStateError, StorageError (77), or
    ConfigurationError (78); then no generation is in force and no agent may start.
    """
    check_overlaps(plan.score_paths.paths, plan.guarded)
    sweep(ground.state, ground.log, ground.workspace, plan.score_paths.paths, strict=plan.strict)
    minted = mint_generation(ground.state, ground.workspace, Frozen(model_id=plan.model_id))
    write_generation(ground.state, minted)
    ground.log.append("generation_minted", generation=minted.generation)
    clear_score_paths(ground, minted.generation, plan.score_paths, stale=stale_inputs(plan))
    frozen = _freeze(ground, plan)
    ground.log.append("model_frozen", **_as_fields(minted, frozen), **baseline())
    in_force = replace(minted, status="in_force", frozen=frozen)
    write_generation(ground.state, in_force)
    return in_force


def check_overlaps(score_paths: Iterable[AgentPath], guarded: Iterable[AgentPath]) -> None:
    """Refuse a score path that equals, holds or lies beneath an input of the attempt (78)."""
    for path in score_paths:
        for other in guarded:
            mine, theirs = path.split(b"/"), other.split(b"/")
            shared = min(len(mine), len(theirs))
            if mine[:shared] == theirs[:shared]:
                raise ConfigurationError(
                    f"score path {shown(path)}",
                    expected="a path apart from diff, prompt and scorer",
                    found=f"an overlap with {shown(other)}",
                    remedy="choose another score path, or move the input",
                )


def clear_score_paths(
    ground: Ground,
    generation: str,
    score_paths: ScorePaths,
    *,
    stale: tuple[AgentPath, ...] = (),
    **fields: str,
) -> None:
    """Wipe the score paths and `stale` inputs, prove them absent, and log it.

    An empty list is logged too; `fields` join the record. Raises WipeError.
    """
    victims = (*score_paths.paths, *stale)
    wiped = wipe(ground.workspace, victims, empty_mounts=score_paths.empty_mounts)
    ground.log.append(
        "score_paths_wiped",
        generation=generation,
        paths=[path_to_json(path) for path in score_paths.paths],
        empty_mounts=score_paths.empty_mounts,
        found=[path_to_json(item.path) for item in wiped if item.existed],
        entries=sum(item.entries for item in wiped),
        **fields,
    )


def stale_inputs(plan: Plan) -> tuple[AgentPath, ...]:
    """Return the inputs that must be gone before an agent starts, as foreign as a score."""
    if plan.starts_agent and plan.diff and plan.diff.inside is not None:
        return (plan.diff.inside,)
    return ()


def _open_workspace(path: Path) -> Directory:
    try:
        return open_directory(path)
    except OSError as error:
        raise ConfigurationError(
            f"workspace {path}",
            expected="a directory",
            found=os.strerror(error.errno or 0),
            remedy="create it, or name another with --workspace",
        ) from error


def _freeze(ground: Ground, plan: Plan) -> Frozen:
    return Frozen(
        model_id=plan.model_id,
        prompt_sha256=_freeze_prompt(ground, plan.prompt) if plan.prompt else None,
        scorer=command_to_json(plan.scorer) if plan.scorer else None,
        config_sha256=plan.config_sha256,
    )


def _freeze_prompt(ground: Ground, prompt: LivePath) -> str:
    """Seal the prompt now, before an agent could edit it."""
    with suppress(FileNotFoundError):
        os.unlink(f"{FROZEN_DIRECTORY}/{FROZEN_PROMPT}", dir_fd=ground.state.directory.fd)
    with suppress(FileExistsError):
        make_directory(ground.state.directory, FROZEN_DIRECTORY).close()
    with open_directory_beneath(ground.state.directory, FROZEN_DIRECTORY) as directory:
        return seal_prompt(prompt, ground.workspace, directory)


def seal_prompt(prompt: LivePath, workspace: Directory, directory: Directory) -> str:
    """Seal the operator's prompt and return its sha256. Raises ConfigurationError."""
    try:
        source = open_live(prompt, workspace, may_be_link=True)
        try:
            digest = seal(source, directory, FROZEN_PROMPT)
        finally:
            os.close(source)
    except (UnsafeFileError, OSError) as error:
        raise _bad_prompt(prompt, str(error)) from error
    if not digest.size:
        raise _bad_prompt(prompt, "an empty file")
    return digest.sha256


def _bad_prompt(prompt: LivePath, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"prompt {prompt.path}",
        expected="a regular file that is not empty",
        found=found,
        remedy="name the prompt with --prompt",
    )


def _as_fields(generation: Generation, frozen: Frozen) -> dict[str, object]:
    return {
        "generation": generation.generation,
        "model_id": frozen.model_id,
        "prompt_sha256": frozen.prompt_sha256,
        "scorer": frozen.scorer,
        "config_sha256": frozen.config_sha256,
    }
