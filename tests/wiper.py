"""Wipe in a process of its own: as a plain user, with few descriptors, or without `openat2`.

    python -m tests.wiper [--uid N] [--files N] [--walk] [--empty-mounts] WORKSPACE [PATH]...

Prints one JSON object, `wiped` or `error`, and exits 0 or with the error's status. Modules
are imported and the workspace opened before the user changes: another user may read neither.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from bootstrap.errors import RunnerError
from bootstrap.files import open_directory
from bootstrap.scorepath import check_score_path
from bootstrap.wipe import wipe
from tests.openers import deny_openat2

both_ways: Final = pytest.mark.parametrize("flags", [(), ("--walk",)], ids=["openat2", "walk"])

ROOT: Final = Path(__file__).parent.parent
NOBODY: Final = 65534


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a wiper ended: its exit status, what it wiped, and its error's one line."""

    status: int
    wiped: list[tuple[str, bool, int]]
    error: str


def wipe_in_child(*argv: str | Path, before: tuple[str, ...] = ()) -> Outcome:
    """Run this module; `before` are words that start it, such as `unshare --mount`."""
    command = [*before, sys.executable, "-m", "tests.wiper", *map(str, argv)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        raise AssertionError(done.stderr) from error
    wiped = [(path, existed, entries) for path, existed, entries in answer.get("wiped", [])]
    return Outcome(done.returncode, wiped, answer.get("error", ""))


def wipe_with_mounts(mounts: str, workspace: Path, *flags: str, path: str = "scores") -> Outcome:
    """Run this module in a mount namespace of its own, once shell lines have mounted there.

    The lines are run in the directory that holds the workspace.
    """
    script = f'set -e\ncd "$1"\n{mounts}\ncd "$OLDPWD"\nshift\nexec "$@"'
    before = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
    return wipe_in_child(*flags, workspace, path, before=(*before, str(workspace.parent)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uid", type=int)
    parser.add_argument("--files", type=int)
    for flag in ("--walk", "--empty-mounts"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("paths", nargs="*", default=["scores"])
    return parser.parse_args()


def _restrict(arguments: argparse.Namespace) -> None:
    codecs.lookup("unicode_escape")  # what an error message loads when it is shown
    if arguments.uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(arguments.uid)
        os.setuid(arguments.uid)
    if arguments.files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.files, arguments.files))
    if arguments.walk:
        deny_openat2()


def main() -> int:
    """Do what the arguments say; return the exit status."""
    arguments = _arguments()
    paths = [check_score_path(path) for path in arguments.paths]
    answer: dict[str, object]
    with open_directory(arguments.workspace) as workspace:
        _restrict(arguments)
        try:
            wiped = wipe(workspace, paths, empty_mounts=arguments.empty_mounts)
        except RunnerError as error:
            status, answer = error.status, {"error": str(error)}
        else:
            found = [(os.fsdecode(item.path), item.existed, item.entries) for item in wiped]
            status, answer = 0, {"wiped": found}
    json.dump(answer, sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
