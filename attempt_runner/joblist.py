"""A list of jobs: one JSON object a line, in the names of job.toml, under the rules of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attempt_runner.jobfile import TABLES, make_job_file, read_trusted, refused, require_outside
from attempt_runner.settings import flag_of, settings
from bootstrap.bind_receipt import StrictJsonError, load_json
from bootstrap.errors import shown

if TYPE_CHECKING:
    from pathlib import Path

    from attempt_runner.jobfile import JobFile

MAX_BYTES: Final = 256 * 1024 * 1024


def read_job_list(path: Path) -> tuple[bytes, ...]:
    """Return the lines of a job list; the first one's index is 0.

    Raises ConfigurationError for a file that others may write or replace, and for one
    without a job: no jobs at all would else look like success.
    """
    lines = tuple(read_trusted(path, MAX_BYTES).removesuffix(b"\n").split(b"\n"))
    if lines == (b"",):
        raise refused(path, "a job a line", "an empty file")
    return lines


def listed_job(path: Path, index: int, workspace: Path | None) -> JobFile:
    """Return one job of a list: its line is what job.toml is for another.

    The keys stand in the tables of job.toml, or without any; relative paths are the list's
    directory's. Raises ConfigurationError for an index beyond the list, and for a line that
    is refused as a job.toml would be.
    """
    if workspace:
        require_outside(path, workspace)
    lines = read_job_list(path)
    if not 0 <= index < len(lines):
        raise refused(path, f"an index from 0 to {len(lines) - 1}", str(index))
    return make_job_file(path, _tables(path, index, lines[index]), lines[index])


def _tables(path: Path, index: int, line: bytes) -> dict[str, dict[str, Any]]:
    try:
        document = load_json(line)
    except StrictJsonError as error:
        raise refused(path, f"JSON in line {index + 1}", shown(error)) from error
    if not isinstance(document, dict):
        raise refused(path, f"an object in line {index + 1}", type(document).__name__)
    places = {flag_of(item.name): item.metadata["table"] for item in settings()}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in document.items():
        inner = value if key in TABLES and isinstance(value, dict) else {key: value}
        table = key if inner is value else places.get(key, "job")
        tables.setdefault(table, {}).update(inner)
    return tables
