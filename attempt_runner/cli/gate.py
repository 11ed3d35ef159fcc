"""`gate`: verify a decided attempt again, right before a merge."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from attempt_runner.cli.jobs import caller, claims_of, open_workspace_state
from attempt_runner.cli.options import Attempt, Require, StateDir, Workspace
from attempt_runner.cli.output import write_result
from attempt_runner.emit import emit_diff
from attempt_runner.evidence import Evidence, load_evidence
from attempt_runner.gate import judge_evidence, refusal
from attempt_runner.plan import parse_requirements
from bootstrap.errors import Finding, RefusalError, UnsafeFileError
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog
from bootstrap.live import LivePath, place
from bootstrap.state import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.plan import Caller
    from bootstrap.identity import FrozenAttempt
    from bootstrap.state import State

LOCK_WAIT: Final = 30.0  # seconds a gate waits for the job that holds the workspace


def command(
    attempt: Attempt,
    workspace: Workspace,
    state_dir: StateDir = None,
    diff: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Live diff to compare; default: the one frozen."),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Live prompt to compare; default: the one frozen."),
    ] = None,
    emit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the very bytes that were verified: merge those."),
    ] = None,
    require: Require = None,
    *,
    consume: Annotated[
        bool, typer.Option("--consume", help="Accept this attempt once: a second gate rejects.")
    ] = False,
) -> int:
    """Verify a decided attempt again: its receipt, sealed copies, live inputs and log.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1. Merge the file that
    --emit writes, in a fresh trusted clone, never in the workspace.
    """
    who = caller()
    with ExitStack() as held:
        state = held.enter_context(open_workspace_state(workspace, state_dir, who))
        if consume:
            held.enter_context(lock(state, LOCK_WAIT))
        requirements = parse_requirements(require or ())
        evidence = load(state, attempt, who, diff, prompt)
        try:
            accepted = judge_evidence(evidence, "decided", requirements)
        except RefusalError as refused:
            if consume:
                _record(state, evidence.identity, "rejected", fields=list(refused.fields))
            raise
        if emit:
            emit_diff(state, accepted, emit)
        if consume:
            digest = accepted.receipt_sha256
            _record(state, evidence.identity, "consumed", receipt_sha256=digest)
    write_result("accept\n")
    return 0


def load(
    state: State,
    attempt: str,
    who: Caller,
    diff: Path | None = None,
    prompt: Path | None = None,
) -> Evidence:
    """Load what the gate judges; an attempt or a workspace that is not there is a refusal.

    `diff` and `prompt` take the place of the paths frozen in attempt.json.
    """
    try:
        workspace = open_directory(state.workspace)
    except OSError as error:
        found = error.strerror or "an error"
        raise refusal([Finding("inputs_changed", "the workspace", found)]) from error
    with workspace, _missing_attempt_refuses():
        return load_evidence(
            state,
            attempt,
            workspace,
            live_diff=_place(diff, state, who),
            live_prompt=_place(prompt, state, who),
            claims=claims_of(who.environ),
        )


@contextmanager
def _missing_attempt_refuses() -> Iterator[None]:
    try:
        yield
    except UnsafeFileError as error:
        found = f"no attempt of this workspace ({error.found})"
        raise refusal([Finding("missing_receipt", "the attempt's receipt", found)]) from error


def _place(path: Path | None, state: State, who: Caller) -> LivePath | None:
    if path is None:
        return None
    return place(Path(os.path.abspath(who.cwd / path)), state.workspace, state.workspace)


def _record(state: State, identity: FrozenAttempt, event: str, **fields: object) -> None:
    JobLog(state.directory).append(
        event,
        generation=identity.generation,
        attempt_id=identity.attempt_id,
        model_id=identity.model_id,
        by="gate",
        **fields,
    )
