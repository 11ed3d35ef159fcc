"""Points to strike at: every call of a run that changes a file, found by tracing a whole run.

Between two of them nothing on disk changes, so right before one is right after the last.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

FORKS: Final = ("fork", "vfork", "clone", "clone3")
CALLS: Final = (
    *("openat", "openat2", "mkdir", "mkdirat", "rename", "renameat", "renameat2"),
    *("link", "linkat", "unlink", "unlinkat", "rmdir", "ftruncate", "fchmod"),
    *("write", "fsync", "fdatasync", *FORKS),
)
# A name that some machine lacks is no error behind a question mark.
TRACED: Final = "trace=" + ",".join(f"?{call}" for call in CALLS)
_CALL: Final = re.compile(r"(\w+)\((?:[\w]*<([^>]*)>|\"([^\"]*)\")?(?:, \"([^\"]*)\")?(.*)")
_RANDOM: Final = re.compile(r"[0-9a-f]{12,}|\d{8}T\d{6}Z|(?<=git-)\w{8}")


@dataclass(frozen=True, slots=True)
class Point:
    """The `number`th call of a name in the runner's own process, and the path it was about."""

    call: str
    number: int
    path: str  # below the job's directory, what is random in it replaced

    def __str__(self) -> str:
        return f"{self.call} {self.number} {self.path}"

    @property
    def forks(self) -> bool:
        """Whether it starts a process."""
        return self.call in FORKS


def strace(output: Path, *inject: str) -> tuple[str, ...]:
    """Return the words that trace a command's own process, and not its children."""
    injected = (word for item in inject for word in ("-e", f"inject={item}"))
    return ("strace", "-qq", "-y", "-s", "0", "-o", str(output), "-e", TRACED, *injected)


def parse(trace: str, root: str) -> list[Point]:
    """Return the points of a trace: the calls that change something below `root`, and forks."""
    counts: Counter[str] = Counter()
    points = []
    for line in trace.splitlines():
        if not (match := _CALL.match(line)):
            continue
        call, opened, path, name, rest = match.groups()
        counts[call] += 1
        if call.startswith("openat") and "O_CREAT" not in rest:
            continue
        place = os.path.join(*(part for part in ("/", opened, path, name) if part))
        below = _RANDOM.sub("*", place.removeprefix(f"{root}/"))
        if call in FORKS:
            points.append(Point(call, counts[call], "a process"))
        elif line.startswith("write(1<"):
            points.append(Point(call, counts[call], "standard output"))
        elif place.startswith(f"{root}/"):
            points.append(Point(call, counts[call], below))
    return points
