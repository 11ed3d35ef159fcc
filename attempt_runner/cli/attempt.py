"""`attempt`: one attempt under the generation that bootstrap put in force."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from attempt_runner.attempt import run_attempt
from attempt_runner.change import baseline_of
from attempt_runner.cli.ci import CI_OPTIONS, Report
from attempt_runner.cli.flags import job_command
from attempt_runner.cli.jobs import announce_weakness, caller, claims_of, read_intent
from attempt_runner.cli.output import complain, write_result
from attempt_runner.cli.progress import show_progress
from attempt_runner.enclosure import enclose_children
from attempt_runner.resume import resume
from attempt_runner.start import Task
from bootstrap.prepare import hold_workspace
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer


@job_command("both", "attempt", more=CI_OPTIONS)
def command(
    ctx: typer.Context, config: Path | None, flags: Mapping[str, object], **report: Any
) -> int:
    """Make one attempt under the generation in force: agent if given, scorer, receipt, gate.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1. A generation admits
    one decided attempt. Bootstrap first: without a generation in force this exits 78.
    """
    who = caller()
    intent = read_intent(config, flags, who)
    guard_runner()
    announce_weakness(intent.job)
    with ExitStack() as held:
        held.enter_context(show_progress(intent, ctx.obj))
        ground = held.enter_context(
            hold_workspace(
                intent.workspace, intent.root, wait=intent.job.wait, inbox=ctx.obj, create=False
            )
        )
        held.enter_context(Report(who.environ, report).watch(ground))
        resumed = resume(ground, intent, claims_of(who.environ))
        enclosures = enclose_children(
            resumed.intent, resumed.inputs, ground.state, who.environ, held
        )
        task = Task(
            resumed.intent,
            resumed.inputs,
            enclosures,
            baseline_of(ground.state, intent.job),
            who.environ,
        )
        accepted = run_attempt(ground, resumed.generation, task, ctx.obj)
    write_result("accept\n")
    complain(f"accepted {accepted.attempt_id} in {ground.state.directory.path}")
    return 0
