"""`init`: a first job.toml, and the one command to run next."""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attempt_runner.cli.jobs import caller
from attempt_runner.cli.options import Workspace
from attempt_runner.cli.output import complain, write_result
from attempt_runner.jobcheck import find_faults
from attempt_runner.jobfile import require_outside
from attempt_runner.starter import KINDS, detect, write_starter
from bootstrap.errors import ConfigurationError, StorageError, shown
from bootstrap.files import open_directory, write_new

Kinds = StrEnum("Kinds", list(KINDS))  # type: ignore[misc]  # typer reads the choices of an enum


def command(
    workspace: Workspace,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write, outside the workspace.")
    ] = Path("job.toml"),
    kind: Annotated[
        Kinds | None, typer.Option("--kind", help="What judges the change; default: detected.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="ID", help="Model id; default: $MODEL_ID.")
    ] = None,
    prompt: Annotated[
        Path, typer.Option("--prompt", metavar="FILE", help="Prompt file of the job.")
    ] = Path("prompt.md"),
) -> int:
    """Write a commented job.toml for a workspace, and print the one command to run next.

    A file that is there is left alone (78).
    """
    who = caller()
    path, place = Path(os.path.abspath(out)), Path(os.path.abspath(workspace))
    require_outside(path, place)
    named = kind.value if kind else detect(place)
    chosen = next(name for name in KINDS if name == named)
    identifier = model or who.environ.get("MODEL_ID") or "my-model"
    text = write_starter(chosen, place, identifier, os.path.abspath(prompt))
    _write(path, text)
    complain(f"wrote {shown(path)} for {chosen}")
    faults = find_faults(path, text.encode("utf-8"), who)
    for fault in faults:
        complain(f"still to do: {fault.what}: {fault.remedy}")
    step = ["check", str(path)] if faults else ["run", "--config", str(path)]
    write_result(f"{shlex.join(['attempt-runner', *step])}\n")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        with open_directory(path.parent) as directory:
            write_new(directory, path.name, text.encode("utf-8"))
    except (OSError, StorageError) as error:
        cause = error.found if isinstance(error, StorageError) else error.strerror
        raise ConfigurationError(
            str(path),
            expected="a new file in a directory of yours",
            found=cause or "an error",
            remedy="name another with --out",
        ) from error
