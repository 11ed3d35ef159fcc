"""What the commands share: who asks, the intent and the state."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.cli.output import complain
from attempt_runner.plan import Caller, Intent, intend, state_root
from attempt_runner.resolve import resolve
from attempt_runner.scores.formats import TABLE
from bootstrap.state import open_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attempt_runner.jobfile import JobFile
    from attempt_runner.settings import Job
    from bootstrap.state import State

WEAK: Final = (
    "isolation none is tamper-evident only: agent and scorer share the runner's user "
    "and could write its state"
)


def caller() -> Caller:
    """Return who asks: this process's directory, environment and user id."""
    return Caller(Path.cwd(), dict(os.environ), os.geteuid())


def read_intent(config: Path | None, flags: Mapping[str, object], who: Caller) -> Intent:
    """Join flags and configuration file, place the paths and freeze the commands."""
    if config is None:
        return intend(resolve(flags, {}, cwd=who.cwd), who)
    from attempt_runner.jobfile import read_job_file  # noqa: PLC0415 - tomllib, where it is used

    workspace = flags.get("workspace")
    file = read_job_file(Path(os.path.abspath(config)), Path(str(workspace)) if workspace else None)
    return intend_file(file, flags, who)


def intend_file(file: JobFile, flags: Mapping[str, object], who: Caller) -> Intent:
    """Join flags and what a configuration file, or a line of a job list, holds."""
    job = resolve(flags, file.values, cwd=who.cwd, config_path=file.path, config_sha256=file.sha256)
    return intend(job, who)


def announce_weakness(job: Job) -> None:
    """Say on standard error what the operator chose that proves less."""
    if job.isolation == "none":
        complain(WEAK)
    if warning := TABLE[job.score_format].warning:
        complain(warning)


@contextmanager
def open_workspace_state(workspace: Path, state_dir: Path | None, who: Caller) -> Iterator[State]:
    """Open the state of a workspace for reading; there must be one (78)."""
    named = Path(os.path.abspath(who.cwd / state_dir)) if state_dir else None
    root = state_root(named, who)
    with open_state(who.cwd / workspace, root.path, create=False, named=root.named) as state:
        yield state


def claims_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment claims of an attempt, by the receipt's field name."""
    names = {"MODEL_ID": "model_id", "WORKSPACE_GEN": "workspace_generation"}
    # One that is set and empty is a claim too: a lost value must not pass for none.
    return {field: environ[name] for name, field in names.items() if name in environ}
