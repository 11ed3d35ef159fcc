"""Read job.toml: only from where no agent and no other user could have written it."""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.settings import flag_of, settings
from bootstrap.errors import ConfigurationError, UnsafeFileError, shown
from bootstrap.files import read_capped, require_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_BYTES: Final = 1024 * 1024
TABLES: Final = ("job", "agent", "scorer")


@dataclass(frozen=True, slots=True)
class JobFile:
    """A configuration file as it was read: raw values by field name, and what to bind it by."""

    values: Mapping[str, object]
    path: Path
    sha256: str


def read_job_file(path: Path, workspace: Path | None) -> JobFile:
    """Read a job.toml. A link is followed and its target judged (a mounted ConfigMap is one).

    Raises ConfigurationError for a file that lies in the workspace, or that a link in the
    workspace leads to, that others may write or replace, that is not TOML, or that holds an
    unknown table or key.
    """
    if workspace:
        require_outside(path, workspace)
    data = read_trusted(path, MAX_BYTES)
    return make_job_file(path, _parse(path, data), data)


def make_job_file(path: Path, tables: Mapping[str, Any], data: bytes) -> JobFile:
    """Return the values of parsed `data`, by table. Raises what `read_job_file` does."""
    values = dict(_values(path, tables))
    inner = values.get("workspace")
    if isinstance(inner, str):
        require_outside(path, path.parent / inner)
    return JobFile(values, path, hashlib.sha256(data).hexdigest())


def require_outside(path: Path, workspace: Path) -> None:
    """Refuse a file of the workspace's, and a link there, which the agent could point anywhere."""
    named = os.path.join(os.path.realpath(path.parent), path.name)
    for place in (named, os.path.realpath(path)):
        if Path(place).is_relative_to(os.path.realpath(workspace)):
            raise refused(path, "a file outside the workspace", "one that the agent can write")


def read_trusted(named: Path, limit: int) -> bytes:
    """Read a file that only the caller or root can have written. Raises ConfigurationError."""
    path = Path(os.path.realpath(named))
    try:
        _require_private_place(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = require_regular(fd, path, single_link=False)
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not _is_trusted(status):
                raise refused(path, "a file that only you or root can write", "another's")
            return read_capped(fd, limit, path)
        finally:
            os.close(fd)
    except UnsafeFileError as error:
        raise refused(path, error.expected, error.found) from error
    except OSError as error:
        raise refused(path, "a readable file", error.strerror or "an error") from error


def _require_private_place(path: Path) -> None:
    """Refuse a parent in which others may replace the file: writable and not sticky."""
    for parent in path.parents:
        status = os.stat(parent)
        open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if (open_to_others and not status.st_mode & stat.S_ISVTX) or not _is_trusted(status):
            raise refused(path, "parents that only you or root can write", str(parent))


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())


def _parse(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise refused(path, "a TOML file in UTF-8", str(error)) from error


def _values(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    known = {flag_of(item.name): item for item in settings()}
    for table, entries in document.items():
        if table not in TABLES or not isinstance(entries, dict):
            raise refused(path, f"only the tables {', '.join(TABLES)}", shown(table))
        for key, value in entries.items():
            item = known.get(key)
            if item is None:
                raise refused(path, _suggestion(key, known), f"key {shown(key)}")
            if item.metadata["table"] != table:
                expected = f"{key} in [{item.metadata['table']}]"
                raise refused(path, expected, f"it in [{table}]")
            yield item.name, value


def _suggestion(key: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

    near = get_close_matches(key, known, n=1)
    return f"a flag's name such as {near[0]}" if near else "a flag's name"


def refused(path: Path, expected: str, found: str) -> ConfigurationError:
    """Return the refusal of a configuration file."""
    return ConfigurationError(
        f"configuration {path}", expected=expected, found=found, remedy="correct or move the file"
    )
