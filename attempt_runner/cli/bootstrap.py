"""`bootstrap`: what must happen before any agent process exists; a job image's entrypoint."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Final, Literal

import typer

from attempt_runner.change import baseline_step
from attempt_runner.ci import append_text, github_file, github_values
from attempt_runner.cli.flags import job_command, parameter
from attempt_runner.cli.jobs import caller, read_intent
from attempt_runner.cli.options import misused
from attempt_runner.cli.output import write_result
from attempt_runner.plan import plan_of
from attempt_runner.resolve import frozen_model
from attempt_runner.schedulers import scheduler_claims
from bootstrap.prepare import hold_workspace, not_yet_started, prepare
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attempt_runner.settings import Job

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
    typer.Option(
        "--format",
        help="How to give the frozen values without a COMMAND: env and json print them, github "
        "appends them to $GITHUB_ENV.",
    ),
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
    model = _one_model(intent.job, who.environ)
    file = github_file(who.environ, "GITHUB_ENV") if form == "github" else None
    guard_runner()
    with (
        not_yet_started(),
        hold_workspace(
            intent.workspace, intent.root, wait=intent.job.wait, inbox=ctx.obj
        ) as ground,
    ):
        record = baseline_step(ground, intent)
        generation = prepare(
            ground, plan_of(intent, model), lambda: {**record(), **scheduler_claims(who.environ)}
        )
    exported = {"MODEL_ID": model, "WORKSPACE_GEN": generation.generation}
    if supervised:
        from bootstrap.entrypoint import supervise  # noqa: PLC0415 - where it is used

        return supervise(supervised, {**os.environ, **exported}, ctx.obj, intent.job.grace)
    if file:
        append_text(file, github_values(exported))
    else:
        write_result(_format(exported, form))
    return 0


def _one_model(job: Job, environ: Mapping[str, str]) -> str:
    model, *others = frozen_model(job, environ)
    if others:
        raise misused("--model", "one, since only `run` tries another", f"{len(others) + 1}")
    return model


def _format(exported: Mapping[str, str], form: Format) -> str:
    if form == "json":
        return json.dumps(exported, indent=2, sort_keys=True) + "\n"
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in exported.items())
