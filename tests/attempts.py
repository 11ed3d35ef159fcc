"""Attempts that were never run: a state, a log and an attempt.json, written directly."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bootstrap.files import AgentPath, Directory, make_directory, open_directory
from bootstrap.freeze import FrozenCommand
from bootstrap.identity import EXCHANGE_PREFIX, AttemptIdentity, write_identity
from bootstrap.joblog import JobLog
from bootstrap.live import LivePath
from bootstrap.state import (
    Frozen,
    State,
    boot_id,
    create_attempt,
    mint_generation,
    mint_id,
    open_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARKER = "0123456789abcdef" * 2


@dataclass(frozen=True, slots=True)
class Scene:
    """An open workspace with its state and log."""

    directory: Path
    state: State
    workspace: Directory
    log: JobLog

    def start(self, **changes: object) -> AttemptIdentity:
        """Leave an attempt that was started and not closed, as a killed runner would."""
        attempt_id = mint_id("att", datetime.now(UTC))
        exchange = self.directory / "scratch" / f"{EXCHANGE_PREFIX}{attempt_id[-16:]}"
        (exchange / "agent").mkdir(parents=True)
        made = identity(self.directory, attempt_id, exchange, **changes)
        with create_attempt(self.state, attempt_id) as directory:
            write_identity(directory, made)
        self.log.append("attempt_started", attempt_id=attempt_id, model_id=made.model_id)
        return made


def identity(
    directory: Path, attempt_id: str, exchange: Path, **changes: object
) -> AttemptIdentity:
    """Return an identity of an attempt in a directory of tests."""
    fields: dict[str, object] = {
        "attempt_id": attempt_id,
        "generation": "gen-20261130T214455Z-" + "0" * 32,
        "model_id": "model-a",
        "workspace": directory / "workspace",
        "workspace_device": 1,
        "workspace_inode": 2,
        "diff": LivePath(directory / "workspace" / "diff", AgentPath(b"diff")),
        "prompt": LivePath(directory / os.fsdecode(b"prompt\xff\n"), None),
        "agent": None,
        "scorer": FrozenCommand(("/bin/true", os.fsdecode(b"100%\xff\n")), {"/bin/true": "0" * 64}),
        "score_format": "score-json",
        "scored": "diff",
        "isolation": {"tier": "none"},
        "baseline": None,
        "marker": MARKER,
        "exchange": exchange,
        "boot_id": boot_id(),
        "processes": {},
    }
    return AttemptIdentity(**(fields | changes))  # type: ignore[arg-type]


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    """Lay out a workspace whose generation was minted and logged."""
    (directory / "workspace").mkdir()
    with ExitStack() as held:
        state = held.enter_context(
            open_state(directory / "workspace", directory / "state", create=True, named=True)
        )
        workspace = held.enter_context(open_directory(directory / "workspace"))
        log = JobLog(state.directory)
        minted = mint_generation(state, workspace, Frozen(model_id="model-a"))
        log.append("generation_minted", generation=minted.generation)
        make_directory(state.directory, "attempts").close()
        yield Scene(directory, state, workspace, log)
