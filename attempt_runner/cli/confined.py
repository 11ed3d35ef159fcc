"""`confined`: what a scorer runs a patch with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from attempt_runner.confined import Confinement, run_confined
from bootstrap.reaper import guard_runner


def command(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run confined.")
    ],
    allow_write: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Directory that it may write, too. Repeatable."),
    ] = None,
    network: Annotated[
        Literal["off", "on"], typer.Option(help="Whether it has the network.")
    ] = "off",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop it after this time, status 124.", min=0)
    ] = 3600.0,
) -> int:
    """Run a command from within a scorer, in a sandbox of its own.

    It sees no score directory, no variable of the scorer's, not its HOME, and no network; it
    may write a fresh HOME and TMPDIR, and what --allow-write names. Its output comes on
    standard output; its status becomes ours, 128 + n for a signal. 78 where no sandbox can be
    had within the scorer's.
    """
    guard_runner()
    asked = Confinement(
        argv=tuple(words),
        cwd=Path(os.path.realpath(".")),
        writable=tuple(Path(os.path.realpath(path)) for path in allow_write or ()),
        network=network == "on",
        timeout=timeout,
    )
    return run_confined(asked, dict(os.environ), ctx.obj)
