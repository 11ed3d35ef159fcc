"""A job of the tests: a real workspace, base, prompt and scorer, run by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.evidence import load_evidence
from attempt_runner.gate import judge_evidence
from bootstrap.errors import RefusalError, RunnerError
from bootstrap.files import open_directory
from bootstrap.state import open_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT_COMMAND: Final = (sys.executable, "-I", "-m", "attempt_runner")
INTERRUPT: Final = Path(__file__).with_name("interrupt.py")
DIFF: Final = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"

# A scorer in the native format, as short as one can be: its verdict is its first argument.
SCORER: Final = """\
import json, os, sys
score = {"verdict": sys.argv[1], "reasons": ["because"], "nonce": os.environ["SCORE_NONCE"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
"""
# Leaves the diff where the job looks for it, and changes the file that the diff is about.
AGENT: Final = f"""\
import pathlib
pathlib.Path("app.py").write_text("x = 2\\n")
pathlib.Path("change.diff").write_text({DIFF!r})
"""
# Tells that it runs by making the file that its argument names, then stays.
BLOCKER: Final = """\
import pathlib, sys, time
pathlib.Path(sys.argv[-1]).touch()
time.sleep(600)
"""


@dataclass(frozen=True, slots=True)
class Job:
    """Directories and files of one job below a test's own directory."""

    directory: Path

    @property
    def workspace(self) -> Path:
        """The directory that the agent writes."""
        return self.directory / "workspace"

    @property
    def base(self) -> Path:
        """A trusted copy of the workspace's start."""
        return self.directory / "base"

    @property
    def diff(self) -> Path:
        """Where the agent leaves its diff."""
        return self.workspace / "change.diff"

    @property
    def prompt(self) -> Path:
        """The prompt."""
        return self.directory / "prompt.md"

    @property
    def state_root(self) -> Path:
        """The state directory of all workspaces."""
        return self.directory / "state"

    @property
    def state(self) -> Path:
        """The one workspace's own folder in it."""
        (folder,) = self.state_root.iterdir()
        return folder

    @property
    def has_log(self) -> bool:
        """Whether any record was written yet."""
        return any(self.state_root.glob("*/job-log.jsonl"))

    @property
    def attempts(self) -> list[Path]:
        """The attempts' directories, oldest first."""
        return sorted((self.state / "attempts").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    @property
    def log(self) -> list[dict[str, Any]]:
        """The records of the job log."""
        lines = (self.state / "job-log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def events(self) -> list[str]:
        """The events of the job log, in order."""
        return [record["event"] for record in self.log]

    def script(self, name: str, text: str) -> Path:
        """Write a Python script outside the workspace."""
        path = self.directory / name
        path.write_text(text)
        return path

    @property
    def last(self) -> str:
        """The id of the attempt that was started last."""
        started = [item for item in self.log if item["event"] == "attempt_started"]
        return str(started[-1]["attempt_id"])

    def of(self, event: str) -> dict[str, Any]:
        """Return the one record of an event."""
        (record,) = (item for item in self.log if item["event"] == event)
        return record

    def decision(self) -> dict[str, Any]:
        """Return decision.json of the last attempt."""
        document = (self.state / "attempts" / self.last / "decision.json").read_bytes()
        return dict(json.loads(document))

    def agent(self, text: str = AGENT, *words: str) -> str:
        """Return an agent command that runs a Python text."""
        return " ".join([sys.executable, "-I", str(self.script("agent.py", text)), *words])

    def scorer(self, *words: str, text: str = SCORER) -> list[str]:
        """Return a scorer command that runs a Python text, `pass` by default."""
        script = str(self.script("scorer.py", text))
        return [sys.executable, "-I", script, *(words or ("pass",))]

    def arguments(self) -> list[str]:
        """Return the flags that every command on this workspace takes."""
        return ["--workspace", str(self.workspace), "--state-dir", str(self.state_root)]

    def run(
        self,
        *flags: str,
        scorer: list[str] | None = None,
        model: str = "model-a",
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run one whole job: the inputs of this object and more flags."""
        return self.command(*self.run_words(*flags, scorer=scorer, model=model), environ=environ)

    def run_words(
        self, *flags: str, scorer: list[str] | None = None, model: str = "model-a"
    ) -> list[str]:
        """Return the words of a `run` with the inputs of this object and more flags."""
        words = ["run", *self.attempt_flags(), "--model", model, *flags, "--"]
        return [*words, *(scorer or self.scorer())]

    def start(
        self, *words: str, before: tuple[str, ...] = (), environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start one command on this workspace, by way of the program `before`."""
        name, *arguments = words
        return subprocess.Popen(
            [*before, *ROOT_COMMAND, name, *self.arguments(), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            env=clean_environment() | dict(environ or {}),
            text=True,
        )

    def interrupt(self, signal: str, event: str, name: str, count: int, *words: str) -> int:
        """Run a command that signals itself at a step (see interrupt.py); return its status."""
        step = (signal, event, name, str(count))
        command, *arguments = words
        done = subprocess.run(
            [sys.executable, "-I", INTERRUPT, *step, command, *self.arguments(), *arguments],
            check=False,
            cwd=self.directory,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=100,
        )
        assert done.stdout in (b"", b"accept\n") or done.stdout.startswith(b"reject: ")
        return done.returncode

    def gate(self, attempt: str, *flags: str) -> str:
        """Return the line that the gate prints for an attempt, or its status without one."""
        done = self.command("gate", attempt, *flags)
        assert (done.returncode == 0) is (done.stdout == "accept\n")
        return done.stdout.strip() or str(done.returncode)

    def judged(self, attempt: str) -> str:
        """Return what `gate` would say, judged in this process: it starts and writes nothing."""
        with (
            open_state(self.workspace, self.state_root, create=False, named=True) as state,
            open_directory(self.workspace) as workspace,
        ):
            try:
                evidence = load_evidence(
                    state, attempt, workspace, live_diff=None, live_prompt=None, claims={}
                )
                judge_evidence(evidence, "decided", {})
            except RefusalError as refused:
                return f"reject: {','.join(refused.fields)}"
            except RunnerError as error:
                return str(error.status)
            return "accept"

    def attempt_flags(self) -> list[str]:
        """Return what `run` and `attempt` have in common."""
        scratch = self.directory / "scratch"
        scratch.mkdir(exist_ok=True)
        return [
            *("--prompt", str(self.prompt), "--diff", str(self.diff)),
            *("--scratch-dir", str(scratch), "--isolation", "none"),
        ]

    def command(
        self, name: str, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one command on this workspace and wait for its end."""
        return subprocess.run(
            [*ROOT_COMMAND, name, *self.arguments(), *arguments],
            capture_output=True,
            check=False,
            cwd=self.directory,
            env=clean_environment() | dict(environ or {}),
            text=True,
            timeout=100,
        )


def clean_environment() -> dict[str, str]:
    """Return an environment without what would change a command's meaning."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "COVERAGE_PROCESS_START")
    return {name: os.environ[name] for name in kept if name in os.environ}


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition holds; fail after a time that no machine needs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make_job(directory: Path) -> Job:
    """Lay out a job: a workspace with one file, its base, a prompt, and a diff that fits."""
    job = Job(directory)
    for place in (job.workspace, job.base):
        place.mkdir()
        (place / "app.py").write_text("x = 1\n")
    job.diff.write_text(DIFF)
    job.prompt.write_text("Make x two.\n")
    return job
