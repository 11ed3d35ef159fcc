"""`run`: bootstrap and one attempt in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attempt_runner.cli.flags import job_command
from attempt_runner.cli.jobs import announce_weakness, caller, read_intent
from attempt_runner.cli.output import complain, write_result
from attempt_runner.failover import plot_course, run_job
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer


@job_command("both", "start", "attempt", "run")
def command(ctx: typer.Context, config: Path | None, flags: Mapping[str, object]) -> int:
    """Bootstrap a workspace and make one attempt: agent, scorer, receipt, gate.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1. With several
    --model one that is unavailable is followed by an attempt with the next; a verdict is
    final, and where the last is unavailable too this exits 75.
    """
    who = caller()
    course = plot_course(read_intent(config, flags, who), who.environ)
    guard_runner()
    announce_weakness(course.intent.job)
    accepted = run_job(course, who, ctx.obj)
    write_result("accept\n")
    complain(f"accepted {accepted.attempt_id}")
    return 0
