"""What `run` needs for a list of jobs: one line of it, or all of them in processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from attempt_runner.cli.flags import parameter
from attempt_runner.cli.jobs import intend_file
from attempt_runner.cli.options import misused
from attempt_runner.cli.output import complain, write_result
from attempt_runner.schedulers import array_index
from attempt_runner.settings import flag_of
from bootstrap.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attempt_runner.plan import Caller, Intent
    from attempt_runner.workers import Ended
    from bootstrap.signals import SignalInbox

LIST_OPTIONS: Final = (
    parameter(
        "job_list",
        Path | None,
        typer.Option(
            "--job-list",
            metavar="FILE",
            help="Jobs, a JSON object a line in job.toml's names; a flag wins over each.",
        ),
    ),
    parameter(
        "index",
        str | None,
        typer.Option(
            "--index",
            metavar="N|auto",
            help="Run this job of the list alone, counted from 0; auto: the array job's index. "
            "Without it all are run here.",
        ),
    ),
    parameter(
        "workers",
        int,
        typer.Option("--workers", metavar="N", min=1, help="Jobs of a list run at a time."),
        default=1,
    ),
)


def check_listed(
    job_list: Path | None, index: str | None, config: Path | None, workers: int, *, alone: bool
) -> None:
    """Refuse options that contradict each other; `alone` are those of one job alone."""
    if job_list is None and (index is not None or workers > 1):
        raise misused("--index and --workers", "a --job-list", "none")
    if job_list and config:
        raise misused("--job-list", "it or --config", "both")
    if job_list and index is None and alone:
        raise misused("--github, --gitlab-dotenv and --echo", "one job", "a list; give --index")


def read_listed(job_list: Path, index: str, flags: Mapping[str, object], who: Caller) -> Intent:
    """Return the intent of one job of a list."""
    from attempt_runner.joblist import listed_job  # noqa: PLC0415 - where it is used

    if index != "auto" and not (index.isascii() and index.isdigit()):
        raise misused("--index", "a whole number from 0 on, or auto", shown(index))
    number = array_index(who.environ) if index == "auto" else int(index)
    workspace = flags.get("workspace")
    path = Path(os.path.abspath(job_list))
    return intend_file(
        listed_job(path, number, Path(str(workspace)) if workspace else None), flags, who
    )


def run_listed(
    job_list: Path, workers: int, flags: Mapping[str, object], inbox: SignalInbox
) -> int:
    """Run all jobs of a list and print a line for each; return the worst of their statuses."""
    from attempt_runner.joblist import read_job_list  # noqa: PLC0415 - where it is used
    from attempt_runner.workers import Workers, run_all  # noqa: PLC0415 - as above

    path = Path(os.path.abspath(job_list))
    count = len(read_job_list(path))
    runner = [sys.executable, "-I", "-m", "attempt_runner", "run", "--job-list", str(path)]
    words = list(_words(flags))
    pool = Workers(lambda index: [*runner, "--index", str(index), *words])
    return run_all(pool, count, workers, inbox, _tell)


def _tell(ended: Ended) -> None:
    for note in ended.notes:
        complain(f"job {ended.index}: {shown(note.removeprefix('attempt-runner: '), 2000)}")
    write_result(f"{ended.index} {ended.status} {shown(ended.line) or '-'}\n")


def _words(flags: Mapping[str, object]) -> Iterator[str]:
    """Yield the flags as they were given, the scorer's words last."""
    for name, value in flags.items():
        for one in value if isinstance(value, list) else [value]:
            if name != "scorer":
                yield from [f"--{flag_of(name)}"] if one is True else [f"--{flag_of(name)}={one}"]
    scorer = flags.get("scorer")
    if isinstance(scorer, list):
        yield from ("--", *scorer)
