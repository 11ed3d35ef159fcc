"""The binder as a user runs it: the bare file, copied alone, in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap import bind_receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN: Final = Path(__file__).parent / "golden" / "receipts"
SUMS: Final = {
    name: digest
    for digest, name in map(str.split, (GOLDEN / "SHA256SUMS").read_text("ascii").splitlines())
}
DEFECTS: Final = sorted(path.name for path in GOLDEN.glob("*--*.json"))
ISOLATED: Final = (sys.executable, "-I")
PATIENCE: Final = 60  # seconds: far more than any case needs, and less than a hang


@dataclass(frozen=True)
class Done:
    """What a process left: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Job:
    """A directory with the golden diff and prompt and a receipt that fits them."""

    directory: Path
    python: tuple[str, ...]

    @property
    def diff(self) -> Path:
        """The change."""
        return self.directory / "patch.diff"

    @property
    def prompt(self) -> Path:
        """The prompt."""
        return self.directory / "prompt.md"

    @property
    def reasons(self) -> Path:
        """The reasons that `write` reads."""
        return self.directory / "reasons.json"

    @property
    def receipt(self) -> Path:
        """The receipt that is verified, and that `write` makes."""
        return self.directory / "receipt.json"

    def command(self, *words: str) -> list[str]:
        """Return the argv of the binder, a file alone in its directory."""
        return [*self.python, str(self.directory / "alone" / "bind_receipt.py"), *words]

    def flags(self, **changes: str | None) -> list[str]:
        """Return the flags that name this job; None drops one, `model` stands for `--model`."""
        named = {
            "diff": str(self.diff),
            "prompt": str(self.prompt),
            "model": "model-a",
            "workspace_gen": "gen-1",
            **changes,
        }
        pairs = [
            ["--" + name.replace("_", "-"), value]
            for name, value in named.items()
            if value is not None
        ]
        return [word for pair in pairs for word in pair]

    def verify(self, **changes: str | None) -> Done:
        """Run `verify` on this job."""
        return run(self.command("verify", *self.flags(**{"receipt": str(self.receipt), **changes})))

    def write(self, **changes: str | None) -> Done:
        """Run `write` on this job; a pass unless told otherwise."""
        flags: dict[str, str | None] = {
            "verdict": "pass",
            "reasons_file": str(self.reasons),
            "out": str(self.receipt),
        }
        return run(self.command("write", *self.flags(**{**flags, **changes})))


def make_job(directory: Path, python: Sequence[str] = ISOLATED) -> Job:
    """Copy the binder, the golden inputs and the golden six-field receipt into a directory."""
    job = Job(directory, tuple(python))
    (directory / "alone").mkdir()
    shutil.copy(bind_receipt.__file__, directory / "alone")
    for name in ("patch.diff", "prompt.md"):
        shutil.copy(GOLDEN / name, directory)
    shutil.copy(GOLDEN / "accept--six-fields.json", job.receipt)
    job.reasons.write_text('["The mean of [2, 4] is 3."]', "utf-8")
    return job


def run(argv: Sequence[str], cwd: Path | None = None) -> Done:
    """Run a command with no environment; a case that hangs fails."""
    done = subprocess.run(argv, capture_output=True, cwd=cwd, env={}, timeout=PATIENCE, check=False)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def accepted(done: Done) -> bool:
    """Tell whether the process said `accept`, all of it and nothing else."""
    return done == Done(0, "accept\n", "")


def rejected(done: Done, *names: str) -> bool:
    """Tell whether the process rejected with exactly these names and nothing else."""
    return done == Done(1, f"reject: {','.join(names)}\n", "")


def refused(done: Done, *parts: str) -> bool:
    """Tell whether the process refused its input in one line that holds every part."""
    one_line = done.err.startswith("bind-receipt: ") and done.err.find("\n") == len(done.err) - 1
    return (done.status, done.out) == (2, "") and one_line and all(p in done.err for p in parts)
