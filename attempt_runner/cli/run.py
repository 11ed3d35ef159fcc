"""`run`: bootstrap and one attempt in one process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from attempt_runner.attempt import run_attempt
from attempt_runner.change import baseline_of, baseline_step
from attempt_runner.cli.flags import job_command
from attempt_runner.cli.jobs import announce_weakness, caller, read_intent
from attempt_runner.cli.output import complain, write_result
from attempt_runner.enclosure import enclose_children
from attempt_runner.plan import plan_of, require_inputs
from attempt_runner.resolve import frozen_model
from attempt_runner.start import Task
from bootstrap.prepare import hold_workspace, not_yet_started, prepare
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer


@job_command("both", "start", "attempt")
def command(ctx: typer.Context, config: Path | None, flags: Mapping[str, object]) -> int:
    """Bootstrap a workspace and make one attempt: agent, scorer, receipt, gate.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1.
    """
    who = caller()
    intent = read_intent(config, flags, who)
    inputs = require_inputs(intent, intent.scorer)
    model, *_ = frozen_model(intent.job, who.environ)
    guard_runner()
    announce_weakness(intent.job)
    with ExitStack() as held:
        with not_yet_started():
            ground = held.enter_context(
                hold_workspace(intent.workspace, intent.root, wait=intent.job.wait, inbox=ctx.obj)
            )
            enclosures = enclose_children(intent, inputs, ground.state, who.environ, held)
            generation = prepare(ground, plan_of(intent, model), baseline_step(ground, intent))
        task = Task(
            intent, inputs, enclosures, baseline_of(ground.state, intent.job), who.environ
        )
        accepted = run_attempt(ground, generation, task, ctx.obj)
    write_result("accept\n")
    complain(f"accepted {accepted.attempt_id} in {ground.state.directory.path}")
    return 0
