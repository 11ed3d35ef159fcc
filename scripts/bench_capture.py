#!/usr/bin/env python3
"""Report what the capture of a tree costs, beside git on the same tree. Gates nothing.

usage: scripts/bench_capture.py [FILES [ROUNDS]]    (20000 files, 5 rounds)
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.baseline import Scope, record_baseline
from attempt_runner.capture import Protection, capture
from bootstrap.errors import RefusalError
from bootstrap.files import open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

LINE = b"a line of some forty bytes, as code has it\n"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def plant(top: Path, files: int) -> None:
    """Make a tree of small text files, all different."""
    for number in range(files):
        directory = top / f"d{number % 50}" / f"e{number % 400}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}.py").write_bytes(b"%d\n" % number + LINE * (number % 200))


def record(root: Path) -> None:
    """Record the baseline."""
    (root / "baseline").mkdir(mode=0o700)
    with (
        open_directory(root / "workspace") as workspace,
        open_directory(root / "baseline") as baseline,
    ):
        record_baseline(workspace, baseline, base=None, scope=Scope())


def capture_unchanged(root: Path) -> None:
    """Capture, which finds no change."""
    attempt = Path(tempfile.mkdtemp(dir=root))
    with (
        open_directory(root / "workspace") as workspace,
        open_directory(root / "baseline") as baseline,
        open_directory(attempt) as directory,
        suppress(RefusalError),
    ):
        capture(workspace, baseline, directory, scope=Scope(), protection=Protection())


def git(root: Path, *commands: str) -> None:
    """Run git commands in the workspace."""
    for command in commands:
        subprocess.run(
            ["git", *command.split()],
            cwd=root / "workspace",
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def git_without_index(root: Path) -> None:
    """Add the whole tree to a repository that has its objects and no index."""
    (root / "workspace/.git/index").unlink(missing_ok=True)
    git(root, "add -A", "write-tree")


def report(name: str, rounds: int, step: Callable[[], object]) -> None:
    """Time some rounds and print one line."""
    took = []
    for _ in range(rounds):
        started = time.perf_counter()
        step()
        took.append(time.perf_counter() - started)
    p95 = sorted(took)[round(0.95 * (rounds - 1))]
    print(f"{name:40} median {statistics.median(took):7.3f} s  p95 {p95:7.3f} s  of {rounds}")


def main(files: int = 20_000, rounds: int = 5) -> None:
    """Print the environment, then one line a measurement."""
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    print(f"{platform.platform()}, Python {platform.python_version()}, {version.stdout.strip()}")
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        plant(root / "workspace", files)
        print(f"{files} files in {root}")
        report("baseline", 1, lambda: record(root))
        report("capture, unchanged", rounds, lambda: capture_unchanged(root))
        git(root, "init -q")
        report("git add and write-tree, first", 1, lambda: git(root, "add -A", "write-tree"))
        report("git add and write-tree, without index", rounds, lambda: git_without_index(root))
        report(
            "git add and write-tree, with index",
            rounds,
            lambda: git(root, "add -A", "write-tree"),
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
