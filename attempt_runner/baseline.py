"""The baseline: the workspace as it was before the agent, in a private copy and a manifest.

It lies in a directory of the state, which no agent can write:

    tree/          every file, directory and link, excluded ones too
    manifest       every path that is not excluded, special files too
    baseline.json  what the two were made from, and their digests

The copy is not a git directory: git cannot hold all that a workspace can (empty directories,
nested repositories, names that it refuses), and a copy is restored byte for byte. Git is
shown the changed files alone. The copy is not synced: a generation does not outlive the boot.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from attempt_runner.base import check_out, copy_base
from attempt_runner.copies import DIRECTORY_MODE, copy_tree
from attempt_runner.coverage import name_paths
from attempt_runner.restore import restore as put_back
from bootstrap.differences import compare
from bootstrap.errors import ConfigurationError, IntegrityError, TamperedStateError, UnsafeFileError
from bootstrap.files import (
    make_directory,
    open_directory_beneath,
    read_regular,
    storage_error,
    write_new,
)
from bootstrap.globs import Globs
from bootstrap.manifest import Tally, open_manifest, read_manifest, save_manifest, walk
from bootstrap.visit import LIMITS, Limits, Rules, TreeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from attempt_runner.base import Base
    from bootstrap.differences import Difference
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry

Kind = Literal["commit", "copy", "as-found"]

TREE: Final = "tree"
MANIFEST: Final = "manifest"
RECORD: Final = "baseline.json"
_SEEN: Final = "workspace"  # the manifest of the last comparison
_RECORD_LIMIT: Final = 1 << 20  # bytes; it holds the operator's patterns
_STORED: Final = (stat.S_IFREG, stat.S_IFLNK)


class StaleWorkspaceError(IntegrityError):
    """The workspace is not its starting point: what a recycled server or an attempt left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What of a workspace is captured: the operator's excludes, and how large it may be.

    `change` bounds the old and new bytes of the changed files: git holds the largest of them
    twice, and needs some 40 seconds for a gigabyte.
    """

    exclude: tuple[str, ...] = ()
    limits: Limits = LIMITS
    change: int = 1 << 30
    progress: Callable[[int], object] | None = None

    def rules(self, exclude: tuple[str, ...] | None = None) -> Rules:
        """Return the rules of a visit, with other excludes where those are given.

        Raises ConfigurationError for a bad pattern.
        """
        patterns = self.exclude if exclude is None else exclude
        return Rules(self.limits, Globs(patterns), self.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A recorded baseline. `tree_sha256` is the manifest's digest, of what is judged in it.

    `stored_sha256` is the digest of the files and links of it that the copy holds.
    """

    kind: Kind
    commit: str | None
    exclude: tuple[str, ...]
    tree_sha256: str
    stored_sha256: str

    def as_fields(self) -> dict[str, object]:
        """Return what log and evidence say of the baseline."""
        return {
            "baseline": self.kind,
            "base_commit": self.commit,
            "baseline_tree_sha256": self.tree_sha256,
            "excluded": list(self.exclude),
        }


def record_baseline(
    workspace: Directory,
    directory: Directory,
    *,
    base: Base | None,
    scope: Scope,
    restore: bool = False,
) -> Baseline:
    """Record the workspace, or the base that it must equal, in an empty private directory.

    With a base the workspace is compared with it, and put back to it if `restore` says so.
    Raises StaleWorkspaceError for a workspace that differs, ConfigurationError for a base or
    workspace that cannot be recorded, and StorageError.
    """
    tally, stored = Tally(), Tally()
    with _recordable(directory), make_directory(directory, TREE, DIRECTORY_MODE) as tree:
        commit = _check_out(base, tree) if base and base.commit else None
        entries = _fill(workspace, tree, base, scope.rules())
        save_manifest(directory, MANIFEST, _counted(entries, tally, stored))
    baseline = Baseline(
        kind="as-found" if base is None else "commit" if commit else "copy",
        commit=commit,
        exclude=scope.exclude,
        tree_sha256=tally.tree_sha256,
        stored_sha256=stored.tree_sha256,
    )
    if base:
        require_workspace(workspace, directory, scope, restore=restore)
        # From here on modes and owners are told against those of the workspace.
        os.replace(_SEEN, MANIFEST, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    write_new(directory, RECORD, json.dumps(asdict(baseline), indent=2).encode("ascii") + b"\n")
    return baseline


def require_workspace(
    workspace: Directory, directory: Directory, scope: Scope, *, restore: bool
) -> tuple[bytes, ...]:
    """Compare a workspace with the baseline, and put it back if `restore` says so.

    Returns the paths that were put back. Raises StaleWorkspaceError, which names the paths
    that differ; ConfigurationError for a workspace that cannot be read, StorageError.
    """
    rules = scope.rules()
    differences = _differences(workspace, directory, rules)
    paths = tuple(one.path for one in differences if one.judged)
    if paths and restore:
        with open_directory_beneath(directory, TREE) as tree:
            _put_back(workspace, tree, differences)
        remaining = _differences(workspace, directory, rules)
    else:
        remaining = differences
    _refuse([one.path for one in remaining if one.judged])
    return paths


def open_baseline(directory: Directory) -> Baseline:
    """Read what a baseline's directory says of it. Raises TamperedStateError."""
    try:
        record = json.loads(read_regular(directory, RECORD, _RECORD_LIMIT))
        return Baseline(**{**record, "exclude": tuple(record["exclude"])})
    except (UnsafeFileError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TamperedStateError(
            f"baseline {directory.path}",
            expected="the record of a baseline",
            found=str(error),
            remedy="bootstrap the workspace again",
        ) from error


def baseline_entries(directory: Directory) -> Iterator[Entry]:
    """Yield the entries of a baseline's manifest. Raises OSError, TamperedStateError."""
    with open_manifest(directory, MANIFEST) as manifest:
        yield from read_manifest(manifest)


def _check_out(base: Base, tree: Directory) -> str:
    with tempfile.TemporaryDirectory(prefix=".git-", dir=tree.path.parent) as scratch:
        return check_out(base, tree.path, Path(scratch))


def _fill(
    workspace: Directory, tree: Directory, base: Base | None, rules: Rules
) -> Iterator[Entry]:
    if base is None:
        return copy_tree(workspace, tree, rules)
    return walk(tree, rules) if base.commit else copy_base(base.path, tree, rules)


def _counted(entries: Iterable[Entry], tally: Tally, stored: Tally) -> Iterator[Entry]:
    for entry in entries:
        tally.add(entry)
        if stat.S_IFMT(entry.mode) in _STORED:
            stored.add(entry)
        yield entry


def _differences(workspace: Directory, directory: Directory, rules: Rules) -> list[Difference]:
    with _recordable(directory):
        save_manifest(directory, _SEEN, walk(workspace, rules))
    with open_manifest(directory, _SEEN) as seen:
        return list(compare(baseline_entries(directory), read_manifest(seen)))


def _put_back(workspace: Directory, tree: Directory, differences: Sequence[Difference]) -> None:
    try:
        put_back(workspace, tree, differences)
    except OSError as error:
        raise storage_error(workspace.path, error) from error


def _refuse(paths: Sequence[bytes]) -> None:
    if paths:
        raise StaleWorkspaceError(
            "workspace",
            expected="the starting point, path for path",
            found=name_paths(paths),
            remedy="put it back with --restore, or start from a clean workspace",
        )


@contextmanager
def _recordable(directory: Directory) -> Iterator[None]:
    """Turn what makes a workspace unfit, before any agent ran, into the operator's error."""
    try:
        yield
    except TreeError as error:
        if error.reason == "changed":
            raise  # somebody writes there before the agent was started: hold the machine
        raise ConfigurationError(
            error.what, expected=error.expected, found=error.found, remedy=error.remedy
        ) from error
    except OSError as error:
        raise storage_error(directory.path, error) from error
