"""`report`: the audit trail of one or many workspaces as a single HTML file."""

from __future__ import annotations

import os
import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import StateDir
from attempt_runner.cli.output import complain, write_result
from attempt_runner.plan import state_root
from attempt_runner.report.model import read_workspace
from bootstrap.chain import LOG_NAME
from bootstrap.errors import ConfigurationError, shown
from bootstrap.files import open_directory, storage_error, write_replacing

if TYPE_CHECKING:
    from collections.abc import Iterable


def command(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="File to write; put in place whole.")
    ] = Path("attempts.html"),
    workspace: Annotated[
        list[Path] | None,
        typer.Option(
            "--workspace",
            metavar="DIR",
            help="Workspace to report on. Repeatable; default: all that have state here.",
        ),
    ] = None,
    state_dir: StateDir = None,
    *,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> int:
    """Write the attempts of one or many workspaces as one self-contained HTML file.

    It loads nothing, needs no script to be read, and decides nothing. Needs the extra
    [report].
    """
    from attempt_runner.report.render import (  # noqa: PLC0415 - needs the extra [report]
        render,
    )

    views = [read_workspace(folder) for folder in _folders(workspace or (), state_dir)]
    made = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    # A name that is not UTF-8 was made visible already, so nothing is lost here.
    page = "".join(render(views, made)).encode("utf-8", "backslashreplace")
    path = Path(os.path.abspath(out))
    try:
        with open_directory(path.parent) as directory:
            write_replacing(directory, path.name, page)
    except OSError as error:
        raise storage_error(path, error) from error
    write_result(f"{shown(path)}\n")
    if open_it and not webbrowser.open(path.as_uri()):
        complain("no browser was found to open it with")
    return 0


def _folders(workspaces: Iterable[Path], state_dir: Path | None) -> list[Path]:
    """Return the folders to read: of the named workspaces, else of all that have a log."""
    who = caller()
    folders = []
    for workspace in workspaces:
        with open_workspace_state(workspace, state_dir, who) as state:
            folders.append(state.directory.path)
    if folders:
        return folders
    root = state_root(Path(os.path.abspath(state_dir)) if state_dir else None, who).path
    try:
        with os.scandir(root) as entries:
            found = sorted(
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and Path(entry.path, LOG_NAME).exists()
            )
    except OSError as error:
        raise _nothing(root, error.strerror or "an error") from error
    if not found:
        raise _nothing(root, "none")
    return found


def _nothing(root: Path, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"state directory {root}",
        expected="the job log of at least one workspace",
        found=found,
        remedy="name the right --state-dir, or run a bootstrap first",
    )
