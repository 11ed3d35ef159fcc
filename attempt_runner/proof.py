"""The proof of a patch: applied to the old files it gives the new ones, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.git import find_git
from attempt_runner.restore import put
from attempt_runner.tree import PatchRefusedError, apply_patch, private_git
from bootstrap.differences import compare
from bootstrap.files import open_directory
from bootstrap.manifest import walk
from bootstrap.visit import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bootstrap.differences import Difference
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry


class NotReproducedError(Exception):
    """A patch that does not give what it was made from: `cause` in words, and the paths."""

    def __init__(self, cause: str, paths: Sequence[bytes]) -> None:
        super().__init__(cause)
        self.cause = cause
        self.paths = paths


def prove(copy: Directory, attempt: Directory, patch: str, changes: Sequence[Difference]) -> None:
    """Apply a sealed patch to the old files of some changes, and require their new ones.

    `copy` holds the old files, `attempt` the patch. Raises NotReproducedError, OSError.
    """
    # A git directory of its own: with an object of the capture at hand, git would take that
    # for the result and not read the patch's bytes.
    with (
        tempfile.TemporaryDirectory(prefix=".proof-", dir=attempt.path) as scratch,
        private_git(find_git(), Path(scratch)) as git,
    ):
        tree = Path(scratch) / "tree"
        tree.mkdir()
        with open_directory(tree) as root:
            for entry in _files(one.before for one in changes):
                put(root, copy, entry)
            try:
                apply_patch(git, attempt.path / patch, tree)
            except PatchRefusedError as error:
                raise NotReproducedError(error.found, [one.path for one in changes]) from error
            _require_equal(root, changes)


def _require_equal(root: Directory, changes: Sequence[Difference]) -> None:
    wanted = _files(one.after for one in changes)
    made = _files(walk(root, EVERYTHING))
    wrong = [one.path for one in compare(wanted, made) if one.judged]
    if wrong:
        raise NotReproducedError("other bytes", wrong)


def _files(entries: Iterable[Entry | None]) -> Iterator[Entry]:
    return (entry for entry in entries if entry and not entry.is_directory)
