"""Job logs to test with: made record by record, or laid down as bytes."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.files import Directory, open_directory
from bootstrap.joblog import JobLog

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).parent / "golden" / "joblog"
GENERATION: Final = "gen-20261130T214455Z-" + "0" * 31 + "1"
LOG: Final = "job-log.jsonl"
HEAD: Final = "job-log.head"


@contextmanager
def log_of(path: Path, events: int = 0) -> Iterator[Directory]:
    """Make a state directory whose log holds a minted generation and some events more."""
    path.mkdir(exist_ok=True)
    with open_directory(path) as directory:
        log = JobLog(directory)
        for number in range(events):
            event = "noted" if number else "generation_minted"
            log.append(event, generation=GENERATION, number=number, name="r\u00e9sum\u00e9")
        yield directory


@contextmanager
def golden_log(path: Path, log: str, head: str = "good.head") -> Iterator[Directory]:
    """Lay a golden log and a golden head down in a state directory."""
    path.mkdir(exist_ok=True)
    (path / LOG).write_bytes((GOLDEN / log).read_bytes())
    (path / HEAD).write_bytes((GOLDEN / head).read_bytes())
    with open_directory(path) as directory:
        yield directory
