"""What `run` and `attempt` tell a CI system, beside their verdict line."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from attempt_runner.cli.flags import parameter
from bootstrap.files import write_replacing
from bootstrap.joblog import read_tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bootstrap.prepare import Ground

CI_OPTIONS: Final = (
    parameter(
        "github",
        bool,
        typer.Option(
            "--github",
            help="Write verdict, attempt_id and receipt_sha256 to $GITHUB_OUTPUT and a table to "
            "$GITHUB_STEP_SUMMARY.",
        ),
        default=False,
    ),
    parameter(
        "gitlab_dotenv",
        Path | None,
        typer.Option(
            "--gitlab-dotenv", metavar="FILE", help="Write the same to a dotenv report of GitLab's."
        ),
    ),
    parameter(
        "echo",
        bool,
        typer.Option(
            "--echo",
            help="Show the output of agent and scorer on standard error at the end, escaped and "
            "between stop-commands of GitHub's.",
        ),
        default=False,
    ),
)


class Report:
    """What is told once the job is over. `watch` looks at its log under the workspace's lock."""

    def __init__(self, environ: Mapping[str, str], chosen: Mapping[str, Any]) -> None:
        self._environ = environ
        self._github: bool = chosen["github"]
        self._echo: bool = chosen["echo"]
        dotenv = chosen["gitlab_dotenv"]
        self._dotenv = Path(os.path.abspath(dotenv)) if dotenv else None

    @contextmanager
    def watch(self, ground: Ground) -> Iterator[None]:
        """Report what is logged from here on, whether the job is accepted, refused or fails."""
        if not (self._github or self._echo or self._dotenv):
            yield
            return
        from attempt_runner import ci  # noqa: PLC0415 - where it is used
        from attempt_runner.emit import open_place  # noqa: PLC0415 - as above

        variables = ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY") if self._github else ()
        files = [ci.github_file(self._environ, name) for name in variables]
        tail = read_tail(ground.state.directory, 1)
        try:
            yield
        finally:
            outcome = ci.outcome_since(ground.state, tail[-1].seq if tail else 0)
            if self._echo and outcome.attempt_id:
                sys.stderr.writelines(ci.quoted_output(ground.state, outcome.attempt_id))
            if files:
                ci.append_text(files[0], ci.github_values(outcome.as_outputs()))
                ci.append_text(files[1], ci.github_summary(outcome))
            if self._dotenv:
                with open_place(self._dotenv, ground.state.workspace) as place:
                    text = ci.gitlab_dotenv(outcome)
                    write_replacing(place, self._dotenv.name, text.encode("ascii"), 0o644)
