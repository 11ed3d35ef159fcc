"""Strike a run at one point, run the job again, and check that nothing was lost or believed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.files import open_directory
from bootstrap.joblog import verify_all
from tests.drivers import alive, wait_until
from tests.faults.points import parse, strace
from tests.jobs import AGENT, ROOT_COMMAND, Job, clean_environment, make_job

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.faults.points import Point

SIGNALS: Final = ("KILL", "TERM", "INT")
_CREATE: Final = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EMFILE", "ENFILE", "EINTR")
_CHANGE: Final = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
# What each kind of call can fail with (its man page); what is removed is not written.
ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    "openat": _CREATE,
    "mkdir": _CHANGE,
    "mkdirat": _CHANGE,
    "renameat": _CHANGE,
    "rename": _CHANGE,
    "linkat": _CHANGE,
    "unlinkat": ("EIO", "EROFS"),
    "rmdir": ("EIO", "EROFS"),
    "fchmod": ("EIO", "EROFS"),
    "ftruncate": ("EIO", "EINTR"),
    "write": ("ENOSPC", "EIO", "EDQUOT", "EINTR"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT"),
    "vfork": ("EAGAIN", "ENOMEM"),
    "fork": ("EAGAIN", "ENOMEM"),
    "clone": ("EAGAIN", "ENOMEM"),
    "clone3": ("EAGAIN", "ENOMEM"),
}
CLOSING: Final = ("accepted", "rejected", "attempt_aborted")

# An agent that does its work and leaves a process behind, in a session of its own.
LEAVING: Final = (
    AGENT
    + """\
import os, sys
pathlib.Path(sys.argv[1]).touch()
if os.fork() == 0:
    os.setsid()
    os.execvp("sleep", [sys.argv[2], "600"])
"""
)


@dataclass(frozen=True, slots=True)
class Struck:
    """How a run ended that was struck."""

    code: int
    out: str
    err: str


def find_points(directory: Path) -> tuple[Point, ...]:
    """Run the whole job untouched; return every point of it, in order.

    An interpreter that has just compiled its modules makes other calls: run once before.
    """
    for name in ("warm", "traced"):
        case = Case(directory / name, "0" * 12)
        struck = case.strike(*strace(case.trace))
        assert struck.out == "accept\n", struck
    return tuple(parse(case.trace.read_text(errors="replace"), str(case.job.directory)))


class MissedError(Exception):
    """A run ended before the call that was to be struck."""


class Case:
    """One job in a directory of its own, to be struck once."""

    def __init__(self, directory: Path, token: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.job: Job = make_job(directory)
        self.token = token
        self._ran = directory / "agent-ran"
        self.trace = directory / "trace"
        agent = self.job.agent(LEAVING, str(self._ran), token)
        self.words = self.job.run_words(
            *("--agent", agent, "--score-path", "score.json", "--base", str(self.job.base))
        )

    def strike(self, *before: str) -> Struck:
        """Run the job by way of the program `before`, with a score of yesterday's planted."""
        job = self.job
        (job.workspace / "score.json").write_text("yesterday's")
        name, *arguments = self.words
        done = subprocess.run(
            [*before, *ROOT_COMMAND, name, *job.arguments(), *arguments],
            capture_output=True,
            check=False,
            cwd=job.directory,
            env=clean_environment(),
            text=True,
            timeout=100,
        )
        return Struck(done.returncode, done.stdout, done.stderr)

    def signal(self, point: Point, name: str) -> Struck:
        """Have the runner get a signal right before a point, and check what is left."""
        struck = self.strike(*strace(self.trace, f"{point.call}:signal={name}:when={point.number}"))
        self._require_struck(f"SIG{name}")
        expected = (-signal.SIGKILL,) if name == "KILL" else (0, 1, 75)
        assert struck.code in expected, struck
        self.check(struck)
        return struck

    def fail(self, point: Point, name: str) -> Struck:
        """Have one call fail, and check what is left."""
        struck = self.strike(*strace(self.trace, f"{point.call}:error={name}:when={point.number}"))
        self._require_struck("(INJECTED)")
        assert struck.code in (0, 1, 75, 77, 78), struck
        if struck.code in (75, 77):
            assert os.strerror(getattr(errno, name)) in struck.err, struck
        self.check(struck)
        return struck

    def _require_struck(self, mark: str) -> None:
        # What wakes the runner for a child's end is a write as well, and comes once or twice:
        # the last of a call's numbers may not come at all.
        if mark not in self.trace.read_text(errors="replace"):
            raise MissedError

    def cut_off(self, size: int) -> Struck:
        """Have every file of the run end at a size, by a short write and then EFBIG."""
        struck = self.strike("prlimit", f"--fsize={size}")
        assert struck.code in (0, 1, 75, 77, 78), struck
        self.check(struck)
        return struck

    def check(self, struck: Struck) -> None:
        """Check every promise about a run that was struck, then run the job again."""
        job = self.job
        assert "Traceback" not in struck.err, struck
        assert (struck.out == "accept\n") is (struck.code == 0), struck
        assert struck.out in ("", "accept\n") or struck.out.startswith("reject: "), struck
        if self._ran.exists():  # no agent can buy another try
            assert struck.code not in (75, 78), struck
        before = self._records()
        self._check_accepts(before, struck)
        files = self._attempt_files()
        again = job.command(*self.words)
        assert (again.returncode, again.stdout) == (0, "accept\n"), (struck, again.stderr)
        after = self._records()
        assert after[: len(before)] == before, "a record was lost"
        self._check_chain()
        self._check_closed(after)
        now = self._attempt_files()
        assert {name: now.get(name) for name in files} == files, "an attempt's file was lost"
        assert not (job.workspace / "score.json").exists()
        wait_until(lambda: not alive(self.token))

    def _records(self) -> list[dict[str, object]]:
        """Return the whole lines of the log."""
        if not self.job.has_log:
            return []
        lines = (self.job.state / "job-log.jsonl").read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def _check_accepts(self, records: list[dict[str, object]], struck: Struck) -> None:
        """Check that an accept, of a run or of a gate, has a closing record."""
        started = [item["attempt_id"] for item in records if item["event"] == "attempt_started"]
        accepted = {item["attempt_id"] for item in records if item["event"] == "accepted"}
        for attempt in started:
            says = self.job.judged(str(attempt))
            assert (says == "accept") <= (attempt in accepted), (attempt, says)
        if struck.code == 0:
            assert self.job.judged(str(started[-1])) == "accept"

    def _check_chain(self) -> None:
        with open_directory(self.job.state) as directory:
            count = sum(1 for _ in verify_all(directory))
        assert count == len(self._records())

    def _check_closed(self, records: list[dict[str, object]]) -> None:
        started = [item["attempt_id"] for item in records if item["event"] == "attempt_started"]
        closed = [item["attempt_id"] for item in records if item["event"] in CLOSING]
        assert sorted(map(str, started)) == sorted(map(str, closed)), "not closed once each"
        for attempt in started[:-1]:
            assert self.job.judged(str(attempt)).startswith("reject: ")
        assert self.job.judged(str(started[-1])) == "accept"

    def _attempt_files(self) -> dict[str, bytes]:
        attempts = [place for root in self._folders() for place in root.glob("attempts/*/*")]
        return {str(path): path.read_bytes() for path in attempts}

    def _folders(self) -> list[Path]:
        root = self.job.state_root
        return list(root.iterdir()) if root.exists() else []
