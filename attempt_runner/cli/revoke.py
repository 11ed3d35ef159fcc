"""`revoke`: take an accept back, where it was given or where it is gated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from attempt_runner.cli.gate import LOCK_WAIT
from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Attempt, StateDir, misused
from attempt_runner.cli.output import write_result
from attempt_runner.ledger import open_ledger, revoke
from bootstrap.errors import UnsafeFileError
from bootstrap.generation import is_minted
from bootstrap.identity import read_identity
from bootstrap.lock import hold_lock
from bootstrap.state import lock, open_attempt

if TYPE_CHECKING:
    from bootstrap.identity import AttemptIdentity
    from bootstrap.state import State

MAX_REASON_CHARS: Final = 4096


def command(
    attempt: Attempt,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept in the log.")],
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Workspace of the attempt.")
    ] = None,
    state_dir: StateDir = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Ledger of a gate's host.")
    ] = None,
) -> int:
    """Record that an attempt may not be accepted any more, for good.

    With --workspace, `gate` and `attest` refuse it from now on; with --ledger,
    `verify-attestation --ledger` does, also if the ledger has not seen the attempt yet. An
    attestation that was signed before stays what it is: tell every ledger.
    """
    if workspace is None and ledger is None:
        raise misused("revoke", "--workspace DIR or --ledger DIR", "neither")
    _check(attempt, reason)
    if workspace is not None:
        with open_workspace_state(workspace, state_dir, caller()) as state, lock(state, LOCK_WAIT):
            _revoke_here(state, attempt, reason)
    if ledger is not None:
        place = Path(os.path.abspath(ledger))
        with open_ledger(place, create=True) as opened, hold_lock(opened, LOCK_WAIT):
            revoke(opened, attempt, reason)
    write_result(f"revoked {attempt}\n")
    return 0


def _check(attempt: str, reason: str) -> None:
    if not is_minted("att", attempt):
        raise misused("attempt", "an attempt id: att-, a time, 32 hex digits", attempt)
    if not reason.strip() or len(reason) > MAX_REASON_CHARS:
        raise misused("--reason", f"1 to {MAX_REASON_CHARS} characters", f"{len(reason)}")


def _revoke_here(state: State, attempt: str, reason: str) -> None:
    identity = _identity(state, attempt)
    revoke(
        state.directory,
        attempt,
        reason,
        generation=identity.generation,
        model_id=identity.model_id,
    )


def _identity(state: State, attempt: str) -> AttemptIdentity:
    try:
        with open_attempt(state, attempt) as directory:
            return read_identity(directory, attempt)
    except UnsafeFileError as error:
        raise misused("attempt", "one of this workspace", error.found) from error
