"""`bootstrap`: what must happen before any agent process exists; a job image's entrypoint."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Final, Literal

import typer

from attempt_runner.change import baseline_step
from attempt_runner.cli.flags import job_command, parameter
from attempt_runner.cli.jobs import caller, read_intent
from attempt_runner.cli.output import write_result
from attempt_runner.plan import plan_of
from attempt_runner.resolve import frozen_model
from bootstrap.prepare import hold_workspace, not_yet_started, prepare
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Format = Literal["env", "json", "github"]

_COMMAND: Final = parameter(
    "supervised",
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]",
        help="Command to supervise once the workspace is ready; its status becomes ours.",
        show_default=False,
    ),
)
_FORMAT: Final = parameter(
    "form",
    Format,
    typer.Option("--format", help="How to print the frozen values without a COMMAND."),
    default="env",
)


@job_command("both", "start", words=_COMMAND, more=[_FORMAT])
def command(
    ctx: typer.Context,
    config: Path | None,
    flags: Mapping[str, object],
    supervised: list[str] | None,
    form: Format,
) -> int:
    """Mint a generation, wipe the score paths, freeze the model: before any agent process.

    Prints the frozen values. With a COMMAND it exports them instead, supervises the command
    (also as PID 1), and returns its status, which is never a verdict.
    """
    who = caller()
    intent = read_intent(config, flags, who)
    model, *_ = frozen_model(intent.job, who.environ)
    guard_runner()
    with (
        not_yet_started(),
        hold_workspace(
            intent.workspace, intent.root, wait=intent.job.wait, inbox=ctx.obj
        ) as ground,
    ):
        generation = prepare(ground, plan_of(intent, model), baseline_step(ground, intent))
    exported = {"MODEL_ID": model, "WORKSPACE_GEN": generation.generation}
    if supervised:
        from bootstrap.entrypoint import supervise  # noqa: PLC0415 - where it is used

        return supervise(supervised, {**os.environ, **exported}, ctx.obj, intent.job.grace)
    write_result(_format(exported, form))
    return 0


def _format(exported: Mapping[str, str], form: Format) -> str:
    if form == "json":
        return json.dumps(exported, indent=2, sort_keys=True) + "\n"
    # GitHub's file format takes the value as it is; a shell wants it quoted.
    quote = str if form == "github" else shlex.quote
    return "".join(f"{name}={quote(value)}\n" for name, value in exported.items())
