"""The attempts of one job, in order, as the log tells them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError
from bootstrap.joblog import CLOSING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bootstrap.joblog import Record

OPEN: Final = "open"
CHANGING: Final = CLOSING | {"consumed", "revoked"}


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt of a job: `outcome` is its last closing event, `gave_way` why a next follows.

    Only an attempt whose outcome is `accepted`, or `consumed` later, had its receipt accepted.
    """

    attempt_id: str
    generation: str
    model_id: str
    outcome: str = OPEN
    gave_way: str = ""


def attempts_of_job(records: Iterable[Record], attempt_id: str | None) -> tuple[Tried, ...]:
    """Return the attempts of the job that holds `attempt_id`, or of the last job for None.

    Reads a whole log and keeps two jobs of it. Raises ConfigurationError where there is none.
    """
    before: dict[str, Tried] = {}
    job: dict[str, Tried] = {}
    wanted: dict[str, Tried] = {}
    for record in records:
        if record.event == "attempt_started":
            before, job = job, _started(record)
        elif record.event == "failed_over":
            job = _joined(before, job, record)
        for known in (job, wanted):
            _note_change(known, record)
        if attempt_id is None or attempt_id in job:
            wanted = job
    if not wanted:
        raise ConfigurationError(
            f"attempt {attempt_id}" if attempt_id else "job",
            expected="an attempt of this workspace",
            found="none",
            remedy="`attempt-runner log` lists them",
        )
    return tuple(wanted.values())


def _started(record: Record) -> dict[str, Tried]:
    fields = record.fields
    names = ("attempt_id", "generation", "model_id")
    tried = Tried(*(str(fields.get(name)) for name in names))
    return {tried.attempt_id: tried}


def _joined(before: dict[str, Tried], job: dict[str, Tried], record: Record) -> dict[str, Tried]:
    """Join an attempt to the one that gave way to it, which the same lock started before it."""
    earlier = before.get(str(record.fields.get("from_attempt_id")))
    if earlier is None:
        return job
    gave_way = replace(earlier, gave_way=str(record.fields.get("cause")))
    return {**before, earlier.attempt_id: gave_way, **job}


def _note_change(job: dict[str, Tried], record: Record) -> None:
    tried = job.get(str(record.fields.get("attempt_id")))
    if tried and record.event in CHANGING:
        job[tried.attempt_id] = replace(tried, outcome=record.event)
