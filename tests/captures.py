"""A workspace, a baseline and an attempt to capture into, as one helper for tests."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.baseline import Baseline, Scope, record_baseline
from attempt_runner.capture import Captured, Protection, capture, captured_tree
from bootstrap.files import open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.base import Base


@dataclass(slots=True)
class Bench:
    """One workspace with its baseline and the attempts made on it, below one directory."""

    root: Path
    scope: Scope = field(default_factory=Scope)
    attempts: int = 0

    @property
    def workspace(self) -> Path:
        """The directory that an agent writes."""
        return self.root / "workspace"

    @property
    def baseline(self) -> Path:
        """The directory of the baseline."""
        return self.root / "baseline"

    @property
    def attempt(self) -> Path:
        """The directory of the last attempt."""
        return self.root / f"attempt-{self.attempts}"

    @property
    def patch(self) -> Path:
        """The sealed patch of the last attempt."""
        return self.attempt / "patch.diff"

    def record(self, base: Base | None = None, *, restore: bool = False) -> Baseline:
        """Record the baseline."""
        self.baseline.mkdir(mode=0o700)
        with ExitStack() as opened:
            return record_baseline(
                opened.enter_context(open_directory(self.workspace)),
                opened.enter_context(open_directory(self.baseline)),
                base=base,
                scope=self.scope,
                restore=restore,
            )

    def capture(self, *protect: str, restore: bool = False) -> Captured:
        """Capture the change into a new attempt."""
        self.attempts += 1
        self.attempt.mkdir(mode=0o700)
        with ExitStack() as opened:
            return capture(
                opened.enter_context(open_directory(self.workspace)),
                opened.enter_context(open_directory(self.baseline)),
                opened.enter_context(open_directory(self.attempt)),
                scope=self.scope,
                protection=Protection(patterns=protect, restore=restore),
            )

    def tree(self, *, writable: bool = False) -> Path:
        """Make the scoring tree of the last capture."""
        into = self.root / f"scratch-{self.attempts}" / "tree"
        into.parent.mkdir()
        with open_directory(self.baseline) as baseline:
            made = captured_tree(baseline, self.patch, into, writable=writable, scope=self.scope)
        return made.path


def make_bench(root: Path, scope: Scope | None = None) -> Bench:
    """Make a workspace that is a git repository with one commit, and no baseline yet."""
    bench = Bench(root, scope or Scope())
    top = bench.workspace
    (top / "package").mkdir(parents=True)
    (top / "code.py").write_text("code\n")
    (top / "notes.txt").write_text("one\ntwo\nthree\n")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "data.bin").write_bytes(bytes(range(256)))
    (top / "link").symlink_to("code.py")
    (top / "dangling").symlink_to("/nowhere")
    (top / "package/module.py").write_text("module\n")
    git(top, "init", "-q")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "start")
    return bench


@contextmanager
def quick_room(otherwise: Path) -> Iterator[Path]:
    """Yield a fresh directory in memory, where there is one: a disk is slow with many files."""
    memory = "/dev/shm"  # noqa: S108 - the directory made there is private
    if not os.access(memory, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def git(where: Path, *arguments: str) -> str:
    """Run git as somebody, with no configuration but the repository's; return its output."""
    done = subprocess.run(
        ["git", *arguments], cwd=where, env=plain_environment(), capture_output=True, check=True
    )
    return done.stdout.decode("utf-8", "surrogateescape")


def plain_environment() -> dict[str, str]:
    """Return an environment in which git works the same on every machine."""
    somebody = {"NAME": "somebody", "EMAIL": "somebody@example.org"}
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in somebody.items()
        },
    }


def contents(top: Path) -> dict[bytes, tuple[str, bytes]]:
    """Return what a patch can carry of a tree: for each path its kind and its bytes."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(top)):
        if directory == os.fsencode(top) and b".git" in names:
            names.remove(b".git")
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        for name in [*files, *links]:
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, os.fsencode(top))
            if relative != b".git":
                found[relative] = _content(path)
    return found


def _content(path: bytes) -> tuple[str, bytes]:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", os.readlink(path)
    with open(path, "rb") as file:
        return ("program" if mode & stat.S_IXUSR else "file"), file.read()
