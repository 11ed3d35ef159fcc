"""Read state directories into views that only have to be laid out.

Whatever cannot be read or does not fit becomes text of the view: a report is most needed when
something is broken. Reads only, and takes no lock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from attempt_runner.advice import next_step
from attempt_runner.lab import CASES
from attempt_runner.story import read_findings
from attempt_runner.tried import CHANGING, OPEN
from bootstrap.errors import LogChainError, RunnerError
from bootstrap.files import open_directory, open_directory_beneath
from bootstrap.generation import is_minted
from bootstrap.identity import read_identity
from bootstrap.joblog import verify_all
from bootstrap.state import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bootstrap.chain import Record
    from bootstrap.errors import Finding
    from bootstrap.files import Directory
    from bootstrap.identity import AttemptIdentity

# The state of the decision table (see `lab`) that a reject by one field alone belongs to.
STATES: Final = {case.must.removeprefix("reject: "): case.state for case in CASES}
OWN_REFUSAL: Final = "none of the seven: the runner refuses this itself"
# Phase: the event that begins it, and the events that end it.
PHASES: Final = (
    ("agent", "attempt_started", ("agent_exited",)),
    ("scorer", "inputs_sealed", ("scorer_exited",)),
    ("gate", "scorer_exited", ("accepted", "rejected")),
)


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field that refused; `state` is its row of the decision table."""

    name: str
    expected: str
    found: str
    state: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of an attempt: seconds from the attempt's start, and how long."""

    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One attempt. `outcome` is its last closing event, `open` without one.

    `earlier` and `later` are the attempts before and after it along a failover, empty where
    there is none; `trouble` says what of its files could not be read.
    """

    attempt_id: str
    generation: str
    model_id: str
    started: str
    outcome: str
    cause: str
    phases: tuple[Phase, ...]
    names: tuple[str, ...]
    fields: tuple[FieldView, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    workspace: str = ""
    earlier: str = ""
    later: str = ""
    gave_way: str = ""
    trouble: str = ""

    @property
    def seconds(self) -> float:
        """Seconds from the attempt's start to the end of its last phase."""
        return max((phase.start + phase.seconds for phase in self.phases), default=0.0)

    @property
    def ended(self) -> str:
        """The outcome in a person's words; an attempt that gave way was failed over."""
        words = "aborted" if self.outcome == "attempt_aborted" else self.outcome
        return f"{words}, failed over" if self.later else words


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceView:
    """One workspace's state: how its log stands, and its attempts, newest first."""

    name: str
    path: str
    whole: bool
    chain: str
    attempts: tuple[AttemptView, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


def read_workspace(folder: Path) -> WorkspaceView:
    """Read the state of one workspace. Raises OSError when the folder cannot be opened."""
    with open_directory(folder) as directory:
        records, chain, whole = _read_log(directory)
        attempts = tuple(reversed(_attempts(directory, records)))
    paths = {attempt.workspace for attempt in attempts if attempt.workspace}
    counts: dict[str, int] = defaultdict(int)
    for attempt in attempts:
        counts[attempt.outcome] += 1
    return WorkspaceView(
        name=folder.name,
        path=", ".join(sorted(paths)) or "unknown",
        whole=whole,
        chain=chain,
        attempts=attempts,
        counts=dict(counts),
    )


def _read_log(directory: Directory) -> tuple[list[Record], str, bool]:
    records: list[Record] = []
    try:
        records.extend(verify_all(directory))
    except LogChainError as error:
        return records, str(error), False
    if not records:
        return records, "no record yet", True
    return records, f"verified: {len(records)} records, ending in {records[-1].sha256}", True


def _attempts(directory: Directory, records: Iterable[Record]) -> list[AttemptView]:
    told: dict[str, list[Record]] = {}
    for record in records:
        attempt_id = record.fields.get("attempt_id")
        if record.event == "attempt_started":
            told.setdefault(str(attempt_id), []).append(record)
        elif attempt_id in told:
            told[str(attempt_id)].append(record)
    views = [_view(attempt_id, own) for attempt_id, own in told.items()]
    return [_with_files(directory, view) for view in _linked(views, told)]


def _view(attempt_id: str, records: Sequence[Record]) -> AttemptView:
    closing = [record for record in records if record.event in CHANGING]
    last = closing[-1] if closing else None
    first = records[0]
    names = [record.fields.get("fields") for record in closing if record.event == "rejected"]
    return AttemptView(
        attempt_id=attempt_id,
        generation=str(first.fields.get("generation")),
        model_id=str(first.fields.get("model_id")),
        started=first.time,
        outcome=last.event if last else OPEN,
        cause=str(last.fields.get("cause") or "") if last else "",
        phases=tuple(_phases(records)),
        names=tuple(map(str, names[-1])) if names and isinstance(names[-1], list) else (),
    )


def _phases(records: Sequence[Record]) -> Iterable[Phase]:
    times = {record.event: _seconds(record.time) for record in records}
    zero = times["attempt_started"]
    for name, begins, ends in PHASES:
        over = [times[event] for event in ends if event in times]
        if begins in times and over:
            start = max(0.0, times[begins] - zero)
            yield Phase(name, start, max(0.0, over[0] - zero - start))


def _seconds(text: str) -> float:
    """Return a record's time, which is for people, as seconds; 0 for one that tells nothing."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _linked(
    views: Iterable[AttemptView], told: Mapping[str, Sequence[Record]]
) -> list[AttemptView]:
    linked = {view.attempt_id: view for view in views}
    for attempt_id, records in told.items():
        for record in records:
            before = str(record.fields.get("from_attempt_id"))
            if record.event == "failed_over" and before in linked:
                cause = str(record.fields.get("cause"))
                linked[before] = replace(linked[before], later=attempt_id, gave_way=cause)
                linked[attempt_id] = replace(linked[attempt_id], earlier=before)
    return list(linked.values())


def _with_files(directory: Directory, view: AttemptView) -> AttemptView:
    """Add what the attempt's own files tell."""
    if not is_minted("att", view.attempt_id):
        return replace(view, trouble="its id is none that the runner minted")
    try:
        with open_directory_beneath(directory, f"{ATTEMPTS}/{view.attempt_id}") as files:
            identity = read_identity(files, view.attempt_id)
            findings = read_findings(files)
    except (RunnerError, OSError) as error:
        return replace(view, trouble=str(error), fields=_fields(view.names, ()))
    return replace(
        view,
        workspace=str(identity.workspace),
        facts=tuple(_facts(identity)),
        fields=_fields(view.names, findings),
    )


def _fields(names: Sequence[str], findings: Sequence[Finding]) -> tuple[FieldView, ...]:
    """Join the log's reject names with what decision.json adds to them."""
    known = {finding.field: finding for finding in findings}
    return tuple(
        FieldView(
            name,
            known[name].expected if name in known else "not recorded",
            known[name].found if name in known else "not recorded",
            STATES.get(name, OWN_REFUSAL),
            next_step(name),
        )
        for name in dict.fromkeys((*names, *known))
    )


def _facts(identity: AttemptIdentity) -> Iterable[tuple[str, str]]:
    yield "scorer", " ".join(identity.scorer.argv)
    yield "agent", " ".join(identity.agent.argv) if identity.agent else "none"
    yield "score format", identity.score_format
    yield "scored", identity.scored
    yield "baseline", identity.baseline or "none"
    for name, value in identity.isolation.items():
        yield f"isolation: {name}", str(value)
