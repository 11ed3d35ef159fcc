"""Options and arguments that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bootstrap.errors import UsageError

Attempt = Annotated[
    str, typer.Argument(metavar="ATTEMPT", help="Attempt id, as `run` and `log` print it.")
]
Workspace = Annotated[
    Path, typer.Option("--workspace", metavar="DIR", help="Workspace of the attempt.")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        help="State directory; default: $ATTEMPT_STATE_DIR, /var/lib/attempt-runner for root, "
        "else $XDG_STATE_HOME/attempt-runner.",
        show_default=False,
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[=VALUE]", help="Demand recorded evidence: scored=tree. Repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, or one a line.")]


def misused(what: str, expected: str, found: str) -> UsageError:
    """Return the error of a command line that does not make sense."""
    return UsageError(what, expected=expected, found=found, remedy="see --help")
