"""`check`: every mistake of a job.toml, each with its line and its cure."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from attempt_runner.cli.jobs import caller
from attempt_runner.cli.options import Json
from attempt_runner.cli.output import write_result
from attempt_runner.jobcheck import Fault, find_faults
from attempt_runner.jobfile import MAX_BYTES, read_trusted
from bootstrap.errors import ConfigurationError, shown


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job.toml to check.")] = Path(
        "job.toml"
    ),
    *,
    as_json: Json = False,
) -> int:
    """Check a job.toml without running anything: exits 0 for a good one, else 78.

    Prints one line for each mistake: file, line, what was expected and found, and the cure.
    """
    faults = find_faults(
        Path(os.path.abspath(file)), read_trusted(Path(os.path.abspath(file)), MAX_BYTES), caller()
    )
    if as_json:
        write_result(json.dumps({"faults": [asdict(fault) for fault in faults]}) + "\n")
    else:
        write_result("".join(_line(file, fault) for fault in faults) or f"{shown(file)}: good\n")
    return ConfigurationError.status if faults else 0


def _line(file: Path, fault: Fault) -> str:
    place = f"{shown(file)}:{fault.line}" if fault.line else shown(file)
    what, expected, found, remedy = (
        shown(part) for part in (fault.what, fault.expected, fault.found, fault.remedy)
    )
    return f"{place}: {what}: expected {expected}, got {found}; {remedy}\n"
