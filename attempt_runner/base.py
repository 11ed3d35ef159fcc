"""The trusted starting point: a directory, or a commit of a repository that no agent writes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.copies import copy_tree
from attempt_runner.git import Git, find_git, make_git
from bootstrap.errors import ConfigurationError
from bootstrap.files import open_directory
from bootstrap.visit import TreeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.git import Ended
    from bootstrap.files import Directory
    from bootstrap.manifest import Entry
    from bootstrap.visit import Rules

_SHA1_DIGITS: Final = 40
_COPIED: Final = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


@dataclass(frozen=True, slots=True)
class Base:
    """A starting point as the operator named it: a directory, or a repository and a commit."""

    path: Path
    commit: str | None = None


def parse_base(text: str, cwd: Path) -> Base:
    """Read `DIR` or `REPO@COMMIT`; a directory that exists under the whole name is a directory.

    Raises ConfigurationError where neither is there.
    """
    whole = cwd / text
    repository, at, commit = text.rpartition("@")
    if whole.is_dir():
        return Base(whole)
    if at and commit and not commit.startswith("-") and (cwd / repository).is_dir():
        return Base(cwd / repository, commit)
    raise ConfigurationError(
        f"base {text}",
        expected="DIR or REPO@COMMIT",
        found="no directory of that name",
        remedy="name a directory or a local repository with --base",
    )


def copy_base(base: Path, target: Directory, rules: Rules) -> Iterator[Entry]:
    """Copy a trusted directory into an empty one and yield the entries that are not excluded.

    Its top-level `.git` is left out. Raises ConfigurationError for what is no readable tree
    of files, directories and links, StorageError if the copy cannot be written.
    """
    try:
        with open_directory(Path(os.path.realpath(base))) as source:
            for entry in copy_tree(source, target, rules):
                if stat.S_IFMT(entry.mode) not in _COPIED:
                    kind = stat.filemode(entry.mode)[0]
                    raise _bad_base(base, f"file type {kind} at {os.fsdecode(entry.path)}")
                yield entry
    except TreeError as error:
        raise _bad_base(base, f"{error.found} at {os.fsdecode(error.path)}") from error
    except OSError as error:
        raise _bad_base(base, os.strerror(error.errno or 0)) from error


def _bad_base(base: Path, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"base {base}",
        expected="a readable directory of files, directories and links",
        found=found,
        remedy="name a clean copy of the starting point with --base",
    )


def check_out(base: Base, into: Path, scratch: Path) -> str:
    """Write the files of a commit to an empty directory and return the commit's full name.

    The repository's configuration, attributes and hooks have no part in it: bytes are written
    as they are stored, links as links, and a submodule is an empty directory. `scratch` is a
    private directory for a git directory of ours. Raises ConfigurationError for a commit that
    is not to be had whole.
    """
    program = find_git()
    trusted = Git(program, _git_directory(base.path), scratch)
    common = _ask(trusted, base, "--path-format=absolute", "--git-common-dir")
    commit = _ask(trusted, base, "--verify", f"{base.commit}^{{commit}}")
    git = make_git(
        program,
        scratch / "git",
        objects=Path(common) / "objects",
        object_format="sha1" if len(commit) == _SHA1_DIGITS else "sha256",
    )
    for command in (["read-tree", commit], ["checkout-index", "--all"]):
        _require(base, git.run(command, work_tree=into))
    return commit


def _git_directory(repository: Path) -> Path:
    nested = repository / ".git"
    return nested if nested.exists() else repository


def _ask(trusted: Git, base: Base, *question: str) -> str:
    """Ask the operator's repository itself; `rev-parse` starts nothing that it names."""
    ended, answer = trusted.ask(["rev-parse", *question], work_tree=trusted.home)
    _require(base, ended)
    return answer


def _require(base: Base, ended: Ended) -> None:
    if ended.failed:
        raise ConfigurationError(
            f"base {base.path}@{base.commit}",
            expected="a commit of a whole local repository",
            found=ended.told,
            remedy="fetch it, or name another with --base",
        )
