"""Close what an earlier run left open: its record, its processes, its trash."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bootstrap.cells import close_cell, find_cell
from bootstrap.errors import ProcessesRemainError
from bootstrap.files import open_directory
from bootstrap.identity import AttemptIdentity, read_identity
from bootstrap.joblog import CLOSING, read_segment
from bootstrap.state import boot_id, open_attempt
from bootstrap.strays import find_strays, stop_strays
from bootstrap.wipe import remove_trash, remove_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bootstrap.files import AgentPath, Directory
    from bootstrap.joblog import JobLog, Record
    from bootstrap.state import State

SEARCHED: Final = "searched, not proved"
STRAY_GRACE: Final = 5.0  # seconds that a killed process has to disappear


def sweep(
    state: State,
    log: JobLog,
    workspace: Directory,
    score_paths: Sequence[AgentPath],
    *,
    strict: bool,
) -> None:
    """Close every attempt of the last generation that has no closing record.

    Its processes are stopped, its exchange directory and its wipe's trash removed, and the
    log gets an `attempt_aborted` that says how sure that is. Raises ProcessesRemainError when
    something could not be stopped, or with `strict` when its absence is not proved.
    """
    for attempt_id in open_attempts(read_segment(state.directory, None)):
        with open_attempt(state, attempt_id) as directory:
            identity = read_identity(directory, attempt_id)
        stopped, proof = _stop_processes(identity)
        if strict and proof == SEARCHED:
            raise _not_proved(attempt_id)
        _remove_exchange(identity)
        log.append(
            "attempt_aborted",
            generation=identity.generation,
            attempt_id=attempt_id,
            model_id=identity.model_id,
            cause="the runner died",
            processes_stopped=stopped,
            proof=proof,
        )
    remove_trash(workspace, score_paths)


def open_attempts(segment: Sequence[Record]) -> list[str]:
    """Return the ids of attempts that were started and not closed, oldest first."""
    closed = {record.fields.get("attempt_id") for record in segment if record.event in CLOSING}
    started = [r.fields.get("attempt_id") for r in segment if r.event == "attempt_started"]
    return [str(attempt_id) for attempt_id in started if attempt_id not in closed]


def _stop_processes(identity: AttemptIdentity) -> tuple[int, str]:
    if identity.boot_id is not None and identity.boot_id != boot_id():
        return 0, "another boot"
    proof = _kill_cells(identity)
    stopped = 0
    # One that is stopped may have forked as it died: look until nothing is found.
    while strays := find_strays(identity.marker, tuple(identity.processes.values())):
        stop_strays(strays, STRAY_GRACE)
        stopped += len(strays)
    return stopped, proof


def _kill_cells(identity: AttemptIdentity) -> str:
    """Kill the cgroups that the attempt's children ran in; tell what that proves.

    Only the last child can be left: the scorer starts once nothing of the agent's is. It can
    leave its cgroup in no tier that made one.
    """
    proof = SEARCHED
    for role in ("agent", "scorer"):
        if role not in identity.processes:
            continue
        cell = find_cell(f"{identity.marker}-{role}")
        proof = SEARCHED if cell is None else "cgroup"
        if cell is not None:
            close_cell(cell)
    return proof


def _not_proved(attempt_id: str) -> ProcessesRemainError:
    return ProcessesRemainError(
        f"processes of {attempt_id}",
        expected="proof that none is left",
        found=SEARCHED,
        remedy="reboot the machine, or run without --strict",
    )


def _remove_exchange(identity: AttemptIdentity) -> None:
    # A scratch directory that is gone, or was emptied by somebody else, has nothing to remove.
    with suppress(FileNotFoundError), open_directory(identity.exchange.parent) as scratch:
        remove_tree(scratch, identity.exchange.name)
