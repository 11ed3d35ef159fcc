"""Tell a CI system how a job ended, in the files that it reads; show output that it must not obey.

A runner of such a system executes what it finds at the start of a line (`::add-mask::`,
`::set-output::`), and takes a delimiter that a value can hold for the value's end.
"""

from __future__ import annotations

import html
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError, UnsafeFileError, shown
from bootstrap.files import open_regular, write_all
from bootstrap.joblog import read_segment
from bootstrap.state import open_attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bootstrap.joblog import Record
    from bootstrap.state import State

DECISIONS: Final = {"accepted": "accept", "rejected": "reject"}
NONE: Final = "none"
LOGS: Final = ("agent.log", "scorer.log")
LINE_CHARS: Final = 4000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the last attempt of a job ended, from its log. What it never came to is empty.

    `verdict` is `accept`, `reject` or `none`; `fields` are the reject's.
    """

    verdict: str = NONE
    attempt_id: str = ""
    model_id: str = ""
    receipt_sha256: str = ""
    fields: tuple[str, ...] = ()

    def as_outputs(self) -> dict[str, str]:
        """Return what later steps of a workflow read."""
        names = ("verdict", "attempt_id", "receipt_sha256")
        return {name: getattr(self, name) for name in names}


def outcome_since(state: State, seq: int) -> Outcome:
    """Return the outcome of the last attempt that was logged after record `seq`.

    An earlier attempt of the workspace is another job's, and never told for this one.
    """
    own = [record for record in read_segment(state.directory, None) if record.seq > seq]
    started = [record for record in own if record.event == "attempt_started"]
    if not started:
        return Outcome()
    attempt_id, model_id = (str(started[-1].fields[name]) for name in ("attempt_id", "model_id"))
    mine = {item.event: item for item in own if item.fields.get("attempt_id") == attempt_id}
    closed = next((event for event in DECISIONS if event in mine), "")
    return Outcome(
        verdict=DECISIONS.get(closed, NONE),
        attempt_id=attempt_id,
        model_id=model_id,
        receipt_sha256=_text(mine.get("receipt_written"), "receipt_sha256"),
        fields=_fields(mine.get("rejected")),
    )


def _text(record: Record | None, name: str) -> str:
    return str(record.fields.get(name, "")) if record else ""


def _fields(record: Record | None) -> tuple[str, ...]:
    fields = record.fields.get("fields") if record else ()
    return tuple(map(str, fields)) if isinstance(fields, list) else ()


def github_file(environ: Mapping[str, str], variable: str) -> Path:
    """Return one of the files that GitHub Actions reads. Raises ConfigurationError."""
    if not environ.get(variable):
        raise ConfigurationError(
            f"${variable}",
            expected="the file that a GitHub Actions runner names there",
            found="none",
            remedy="run it in a step of a workflow",
        )
    return Path(environ[variable])


def github_values(values: Mapping[str, str]) -> str:
    """Return values as GitHub's files take them, between delimiters that nobody could know."""
    delimiter = f"end_{secrets.token_hex(16)}"
    lines = (f"{name}<<{delimiter}\n{value}\n{delimiter}\n" for name, value in values.items())
    return "".join(lines)


def github_summary(outcome: Outcome) -> str:
    """Return a job summary: a table in GitHub's Markdown, its values escaped."""
    rows = {**outcome.as_outputs(), "model": outcome.model_id, "rejected": ",".join(outcome.fields)}
    lines = (f"| {name} | {_cell(value)} |\n" for name, value in rows.items() if value)
    return "".join(("| attempt-runner | |\n|---|---|\n", *lines))


def _cell(text: str) -> str:
    return f"<code>{html.escape(shown(text)).replace('|', '&#124;')}</code>"


def gitlab_dotenv(outcome: Outcome) -> str:
    """Return the outcome as a dotenv report, which GitLab gives to later jobs."""
    return "".join(
        f"ATTEMPT_{name.removeprefix('attempt_').upper()}={value}\n"
        for name, value in outcome.as_outputs().items()
    )


def append_text(path: Path, text: str) -> None:
    """Append to a CI system's file, which must be no link. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        write_all(fd, text.encode())
    finally:
        os.close(fd)


def quoted_output(state: State, attempt_id: str) -> Iterator[str]:
    """Yield what agent and scorer printed, escaped and within lines that GitHub does not obey."""
    token = secrets.token_hex(16)
    yield f"::stop-commands::{token}\n"
    with open_attempt(state, attempt_id) as directory:
        for name in LOGS:
            try:
                fd = open_regular(directory, name)
            except UnsafeFileError:
                continue
            with os.fdopen(fd, "rb") as file:
                while line := file.readline(LINE_CHARS):
                    yield f"{name}: {shown(line.rstrip(), LINE_CHARS)}\n"
    yield f"::{token}::\n"
