"""`run`: bootstrap and one attempt in one process, or a list of such jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attempt_runner.cli.ci import CI_OPTIONS, Report
from attempt_runner.cli.flags import job_command
from attempt_runner.cli.jobs import announce_weakness, caller, read_intent
from attempt_runner.cli.lists import LIST_OPTIONS, check_listed, read_listed, run_listed
from attempt_runner.cli.output import complain, write_result
from attempt_runner.cli.progress import show_progress
from attempt_runner.course import plot_course
from attempt_runner.failover import run_job
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import typer


@job_command("both", "start", "attempt", "run", more=(*LIST_OPTIONS, *CI_OPTIONS))
def command(
    ctx: typer.Context,
    config: Path | None,
    flags: Mapping[str, object],
    job_list: Path | None,
    index: str | None,
    workers: int,
    **report: Any,
) -> int:
    """Bootstrap a workspace and make one attempt: agent, scorer, receipt, gate.

    Prints `accept` and exits 0, or prints `reject: FIELD,...` and exits 1. With several
    --model one that is unavailable is followed by an attempt with the next; a verdict is
    final, and where the last is unavailable too this exits 75. With --job-list and no --index
    it prints `INDEX STATUS VERDICT` for each job, and exits with the worst of the statuses.
    """
    check_listed(job_list, index, config, workers, alone=any(report.values()))
    if job_list and index is None:
        return run_listed(job_list, workers, flags, ctx.obj)
    who = caller()
    intent = (
        read_listed(job_list, index, flags, who)
        if job_list and index is not None
        else read_intent(config, flags, who)
    )
    course = plot_course(intent, who.environ)
    guard_runner()
    announce_weakness(course.intent.job)
    with show_progress(intent, ctx.obj):
        accepted = run_job(course, who, ctx.obj, Report(who.environ, report).watch)
    write_result("accept\n")
    complain(f"accepted {accepted.attempt_id} of {accepted.receipt.model_id}")
    return 0
