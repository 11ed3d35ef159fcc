"""What a patch can carry: names are judged as git itself judges them."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from attempt_runner.coverage import git_refuses, name_paths, sort_changes
from bootstrap.differences import Difference
from bootstrap.globs import Globs
from bootstrap.manifest import Entry
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    ".git",
    ".GIT",
    "a/.git/b",
    "a/.Git",
    "git~1",
    "GIT~1/x",
    "git~2",
    ".git.",
    ".git ",
    ".git. . /x",
    ".git::$INDEX_ALLOCATION",
    ".git:x",
    ".gitx",
    "x.git",
    "..git",
    "a\\.git",
    "a\\.git\\b",
    ".git\\x",
    ".g\u200cit",
    "\ufeff.git/x",
    ".gi\u2060t",
    ".gitmodules",
    ".gitmodules .",
    "gitmod~1",
    "gi7eba~1",
    ".gitattributes",
    "a/.gitmodules",
    "caf\udce9",
    "normal.py",
]


@needs("git")
@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("name", NAMES)
def test_names_are_refused_as_git_refuses_them(name: str, tmp_path: Path, *, link: bool) -> None:
    """Whatever git refuses, on this system or on one it protects, is a coverage finding."""
    path = name.encode("utf-8", "surrogateescape")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    mode = "120000" if link else "100644"
    protect = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true")
    add = ("update-index", "--add", "--cacheinfo", mode, "1" * 40, os.fsdecode(path))
    done = subprocess.run(["git", *protect, *add], cwd=tmp_path, capture_output=True, check=False)
    assert git_refuses(path, is_link=link) is (done.returncode != 0)


def entry(path: bytes, mode: int = stat.S_IFREG | 0o644, content: bytes = b"0" * 64) -> Entry:
    """Make an entry of one byte."""
    return Entry(path, mode, 0, 0, 1, content)


@pytest.mark.parametrize(
    ("before", "after", "covered"),
    [
        (None, stat.S_IFREG | stat.S_ISUID | 0o755, False),
        (stat.S_IFREG | stat.S_ISGID | 0o755, stat.S_IFREG | 0o755, False),
        (stat.S_IFREG | stat.S_ISUID | 0o755, None, True),
        (stat.S_IFDIR | 0o755, stat.S_IFDIR | stat.S_ISGID | 0o755, False),
        (None, stat.S_IFDIR | stat.S_ISGID | 0o755, True),
        (stat.S_IFIFO | 0o644, None, False),
        (None, stat.S_IFCHR | 0o644, False),
        (stat.S_IFREG | 0o644, stat.S_IFREG | 0o666, True),
        (stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777, True),
    ],
)
def test_what_a_patch_can_show(before: int | None, after: int | None, *, covered: bool) -> None:
    """Set-id bits and special files are not dropped; a new directory may inherit its group."""
    difference = Difference(
        b"x",
        entry(b"x", before) if before is not None else None,
        entry(b"x", after) if after is not None else None,
    )
    sorting = sort_changes([difference], Globs(), restore_protected=False)
    assert bool(sorting.findings) is not covered


def test_a_path_too_long_for_git_is_named() -> None:
    """Git names a file by its whole path, which the system bounds."""
    path = b"/".join([b"x" * 250] * 20)
    sorting = sort_changes([Difference(path, None, entry(path))], Globs(), restore_protected=False)
    assert "too long" in sorting.findings[0].found


def test_many_paths_are_counted_and_some_named() -> None:
    """A list of names stays short, and its count whole."""
    named = name_paths([b"p%d" % number for number in range(1000)])
    assert named.startswith("1000 paths: p0, p1,")
    assert len(named) < 200
