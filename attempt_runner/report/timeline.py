"""Where the bars of the timeline stand: attempts of one job share its clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attempt_runner.report.model import AttemptView

ROWS: Final = 40  # attempts of one drawing: more would not be looked at
ROW: Final = 28  # height of one row, in the drawing's units, which are pixels at full width
LEFT: Final = 250  # where the bars begin, right of model and generation
WIDTH: Final = 480  # of the time axis
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Bar:
    """One phase as a rectangle."""

    name: str
    x: float
    width: float
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt's row from `start` to `end`; `follows` says that the row above gave way to it."""

    attempt: AttemptView
    y: int
    bars: tuple[Bar, ...]
    start: float
    end: float
    follows: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows, and the ticks of the axis as position and label."""

    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    height: int


def draw(attempts: Sequence[AttemptView]) -> Timeline:
    """Lay out the newest attempts, oldest first, on one scale of seconds."""
    chosen = tuple(reversed(attempts[:ROWS]))
    offsets = dict(_offsets(chosen))
    longest = max((offsets[one.attempt_id] + one.seconds for one in chosen), default=0.0) or 1.0
    rows = []
    for number, one in enumerate(chosen):
        offset = offsets[one.attempt_id]
        bars = tuple(_bars(one, offset, longest))
        start = round(LEFT + WIDTH * offset / longest, 1)
        end = round(LEFT + WIDTH * (offset + one.seconds) / longest, 1)
        rows.append(Row(one, number * ROW, bars, start, end, offset > 0))
    ticks = tuple(
        (round(LEFT + WIDTH * part / TICKS, 1), f"{longest * part / TICKS:.3g} s")
        for part in range(TICKS + 1)
    )
    return Timeline(tuple(rows), ticks, len(rows) * ROW)


def _offsets(attempts: Sequence[AttemptView]) -> Iterator[tuple[str, float]]:
    """Give each attempt the second of its job at which it starts: after those that gave way."""
    known: dict[str, float] = {}
    seconds = {one.attempt_id: one.seconds for one in attempts}
    for one in attempts:
        before = known.get(one.earlier)
        known[one.attempt_id] = 0.0 if before is None else before + seconds[one.earlier]
        yield one.attempt_id, known[one.attempt_id]


def _bars(attempt: AttemptView, offset: float, longest: float) -> Iterator[Bar]:
    for phase in attempt.phases:
        x = LEFT + WIDTH * (offset + phase.start) / longest
        width = max(2.0, WIDTH * phase.seconds / longest)
        label = f"{phase.name} {phase.seconds:.2f} s"
        yield Bar(phase.name, round(x, 1), round(width, 1), label)
