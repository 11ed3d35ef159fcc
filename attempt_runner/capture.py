"""Capture: what the agent changed, as a sealed patch that was proved to reproduce it.

The second manifest tells every path that differs from the baseline. What a patch can carry is
written by git, from the baseline's copy and the workspace; what it cannot refuses the attempt.
Then the patch is applied to the baseline's files as any `git apply --binary` would, and the
result must be the manifest's, byte for byte.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.baseline import MANIFEST, TREE, baseline_entries, open_baseline
from attempt_runner.coverage import NAMED_PATHS, name_paths, sort_changes
from attempt_runner.diff import CaptureError, Side, write_diff
from attempt_runner.git import find_git
from attempt_runner.proof import NotReproducedError, prove
from attempt_runner.tree import private_git, scoring_tree
from bootstrap.differences import compare, verified
from bootstrap.errors import Finding, RefusalError, TamperedStateError
from bootstrap.files import open_directory_beneath, storage_error
from bootstrap.globs import Globs
from bootstrap.live import path_to_json
from bootstrap.manifest import open_manifest, read_manifest, save_manifest, walk
from bootstrap.seal import seal
from bootstrap.visit import TreeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attempt_runner.baseline import Baseline, Scope
    from attempt_runner.coverage import Recorded, Sorting
    from attempt_runner.tree import ScoringTree
    from bootstrap.differences import Difference
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry
    from bootstrap.seal import Digest

PATCH: Final = "patch.diff"
PATCH_BYTES: Final = (1 << 30) - 1  # more is refused by `git apply` itself (apply.c)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Which paths the agent may not change, and whether a change refuses or is put back."""

    patterns: tuple[str, ...] = ()
    restore: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A change: the sealed patch, and the digest of the manifest that was captured.

    `restored` are protected paths that the patch leaves as the baseline has them.
    """

    patch: Digest
    tree_sha256: str
    changed: int
    protection: Protection
    restored: tuple[bytes, ...]
    recorded: Recorded

    def as_fields(self) -> dict[str, object]:
        """Return what log and evidence say of the change; paths are percent-encoded."""
        return {
            "tree_sha256": self.tree_sha256,
            "changed_paths": self.changed,
            "protected": list(self.protection.patterns),
            "restored_protected": {"count": len(self.restored), "first": _first(self.restored)},
            "recorded": {
                "modes": self.recorded.modes,
                "owners": self.recorded.owners,
                "directories": self.recorded.directories,
                "first": _first(self.recorded.first),
            },
        }


def _first(paths: Sequence[bytes]) -> list[str]:
    return [path_to_json(path) for path in paths[:NAMED_PATHS]]


def capture(
    workspace: Directory,
    baseline_directory: Directory,
    attempt: Directory,
    *,
    scope: Scope,
    protection: Protection,
) -> Captured:
    """Seal the workspace's change as `patch.diff`, with its `manifest`, in an attempt.

    Nothing of the agent's may be alive. What `scope` excludes is not read: the baseline says
    what is left out. Raises RefusalError: `diff_file` for no change, `protected_paths`, and
    `coverage` for what a patch cannot show or nobody can read; CaptureError if git fails,
    TamperedStateError, StorageError.
    """
    baseline = open_baseline(baseline_directory)
    with _readable(attempt):
        rules = scope.rules(baseline.exclude)
        tree_sha256 = save_manifest(attempt, MANIFEST, walk(workspace, rules))
        sorting = _sort(baseline, baseline_directory, attempt, protection)
        with open_directory_beneath(baseline_directory, TREE) as copy:
            _require_size(sorting.patch, scope.change)
            digest = _seal_diff(workspace, copy, attempt, sorting.patch)
            prove(copy, attempt, PATCH, sorting.patch)
    return Captured(
        patch=digest,
        tree_sha256=tree_sha256,
        changed=len(sorting.patch),
        protection=protection,
        restored=sorting.restored,
        recorded=sorting.recorded,
    )


def captured_tree(
    baseline_directory: Directory, patch: Path, into: Path, *, writable: bool, scope: Scope
) -> ScoringTree:
    """Make the scoring tree of a captured change: the baseline's copy with the patch applied.

    Raises as `scoring_tree`, and TamperedStateError for a copy that is not the baseline's.
    """
    baseline = open_baseline(baseline_directory)
    rules = scope.rules(baseline.exclude)
    made = scoring_tree(baseline_directory.path / TREE, patch, into, writable=writable, rules=rules)
    if made.base_sha256 != baseline.stored_sha256:
        raise TamperedStateError(
            "baseline",
            expected=baseline.stored_sha256,
            found=made.base_sha256,
            remedy="bootstrap the workspace again",
        )
    return made


def _sort(
    baseline: Baseline, directory: Directory, attempt: Directory, protection: Protection
) -> Sorting:
    before = verified(baseline_entries(directory), baseline.tree_sha256)
    with open_manifest(attempt, MANIFEST) as manifest:
        sorting = sort_changes(
            compare(before, read_manifest(manifest)),
            Globs(protection.patterns),
            restore_protected=protection.restore,
        )
    if sorting.findings:
        raise RefusalError(sorting.findings, remedy="undo those changes in a new attempt")
    if not sorting.patch:
        raise _refusal("diff_file", "a change of the workspace", "none")
    return sorting


def _seal_diff(
    workspace: Directory, copy: Directory, attempt: Directory, changes: Sequence[Difference]
) -> Digest:
    before = Side("before", copy, [one.before for one in changes if one.before], ours=True)
    after = Side("after", workspace, [one.after for one in changes if one.after], ours=False)
    with _scratch(attempt) as (scratch, target), private_git(find_git(), scratch) as git:
        try:
            write_diff(git, before, after, target)
        except CaptureError as error:
            if error.too_large:
                raise _too_large(changes) from error
            raise
        if os.fstat(target).st_size > PATCH_BYTES:
            raise _too_large(changes)
        return seal(target, attempt, PATCH)


def _require_size(changes: Sequence[Difference], limit: int) -> None:
    if sum(entry.size for entry in _entries(changes)) > limit:
        raise _too_large(changes)


@contextmanager
def _scratch(attempt: Directory) -> Iterator[tuple[Path, int]]:
    with (
        tempfile.TemporaryDirectory(prefix=".capture-", dir=attempt.path) as scratch,
        tempfile.TemporaryFile(dir=scratch) as target,
    ):
        yield Path(scratch), target.fileno()


@contextmanager
def _readable(attempt: Directory) -> Iterator[None]:
    """Turn a path that cannot be captured into the refusal that names it."""
    try:
        yield
    except TreeError as error:
        found = f"{error.reason}: {os.fsdecode(error.path)}"
        raise _refusal("coverage", "a workspace that can be read whole", found) from error
    except NotReproducedError as error:
        found = f"{error.cause}: {name_paths(error.paths)}"
        raise _refusal("coverage", "a patch that gives the same bytes", found) from error
    except OSError as error:
        raise storage_error(attempt.path, error) from error


def _too_large(changes: Sequence[Difference]) -> RefusalError:
    largest = max(_entries(changes), key=lambda entry: entry.size)
    found = f"{os.fsdecode(largest.path)} of {largest.size} bytes, the largest"
    return _refusal("coverage", "a change within the limit of bytes", found)


def _entries(changes: Sequence[Difference]) -> Iterator[Entry]:
    return (entry for one in changes for entry in (one.before, one.after) if entry)


def _refusal(field: str, expected: str, found: str) -> RefusalError:
    return RefusalError((Finding(field, expected, found),), remedy="start a new attempt")
