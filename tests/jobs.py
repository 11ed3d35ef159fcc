"""A job of the tests: a real workspace, base, prompt and scorer, run by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROOT_COMMAND: Final = (sys.executable, "-I", "-m", "attempt_runner")
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

    def agent(self, text: str = AGENT) -> str:
        """Return an agent command that runs a Python text."""
        return f"{sys.executable} -I {self.script('agent.py', text)}"

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
        return self.command(
            "run",
            *self.attempt_flags(),
            *("--model", model, *flags),
            "--",
            *(scorer or self.scorer()),
            environ=environ,
        )

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


def make_job(directory: Path) -> Job:
    """Lay out a job: a workspace with one file, its base, a prompt, and a diff that fits."""
    job = Job(directory)
    for place in (job.workspace, job.base):
        place.mkdir()
        (place / "app.py").write_text("x = 1\n")
    job.diff.write_text(DIFF)
    job.prompt.write_text("Make x two.\n")
    return job
