"""The scoring tree: a private copy of a trusted base with the sealed diff applied.

The diff may be an agent's. `git apply` reads it with nobody's configuration, refuses a path
that leaves the tree or enters a `.git`, and applies all of it or nothing; its time, memory
and file sizes are bounded.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.base import copy_base
from attempt_runner.copies import DIRECTORY_MODE, file_mode, settle
from attempt_runner.git import BOUNDS, find_git, make_git
from bootstrap.errors import RunnerError
from bootstrap.files import Directory, make_directory, open_directory, storage_error
from bootstrap.manifest import Tally
from bootstrap.visit import EVERYTHING, TreeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.git import Bounds, Git
    from bootstrap.visit import Rules

APPLY: Final = ("apply", "--binary", "--whitespace=nowarn", "-p1", "-")
_UNWRITABLE: Final = ~0o222


class PatchRefusedError(RunnerError):
    """A diff does not apply to its base, or git refused it: there is nothing to score."""

    status = 1


@dataclass(frozen=True, slots=True)
class ScoringTree:
    """A tree to score: where it is, and the `tree_sha256` of the base that it was made from."""

    path: Path
    base_sha256: str


def scoring_tree(
    base: Path, patch: Path, into: Path, *, writable: bool = False, rules: Rules = EVERYTHING
) -> ScoringTree:
    """Copy a trusted base to the new directory `into` and apply a sealed diff to the copy.

    The base's top-level `.git` is left out. Nothing in the tree is writable by its mode,
    unless `writable` is asked for. `into` is in a directory that only the runner can write;
    on failure the caller removes what is left there.

    Raises PatchRefusedError for the diff, ConfigurationError for the base or a missing git,
    and StorageError if the copy cannot be written.
    """
    program = find_git()
    tally = Tally()
    with _make(into) as tree:
        for entry in copy_base(base, tree, rules):
            tally.add(entry)
        with private_git(program, into.parent) as git:
            apply_patch(git, patch, into)
        _settle(tree, writable=writable)
    return ScoringTree(into, tally.tree_sha256)


@contextmanager
def private_git(program: str, parent: Path) -> Iterator[Git]:
    """Yield a git directory of ours, empty and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix=".git-", dir=parent) as directory:
        yield make_git(program, Path(directory) / "git")


def apply_patch(git: Git, patch: Path, tree: Path, bounds: Bounds = BOUNDS) -> None:
    """Apply a sealed diff to a private tree, all of it or nothing. Raises PatchRefusedError."""
    source = os.open(patch, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        ended = git.run(APPLY, work_tree=tree, stdin=source, bounds=bounds)
    finally:
        os.close(source)
    if ended.failed:
        raise _refused(ended.told)


def _refused(found: str) -> PatchRefusedError:
    return PatchRefusedError(
        "diff",
        expected="a patch that `git apply` takes",
        found=found,
        remedy="look at it with: git apply --check",
    )


def _make(into: Path) -> Directory:
    try:
        with open_directory(into.parent) as parent:
            return make_directory(parent, into.name, DIRECTORY_MODE)
    except OSError as error:
        raise storage_error(into, error) from error


def _settle(tree: Directory, *, writable: bool) -> None:
    keep = ~0 if writable else _UNWRITABLE

    def mode_of(mode: int) -> int:
        return keep & (DIRECTORY_MODE if stat.S_ISDIR(mode) else file_mode(mode))

    try:
        settle(tree, mode_of)
    except TreeError as error:
        # The base was within the limits: it is the diff that is not.
        raise _refused(f"{os.fsdecode(error.path)} over the limit: {error.expected}") from error
    except OSError as error:
        raise storage_error(tree.path, error) from error
