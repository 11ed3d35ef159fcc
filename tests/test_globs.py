"""Globs: Python 3.13's `full_match` on every Python, in linear time."""

from __future__ import annotations

import sys
import time
from pathlib import PurePosixPath

import pytest

from bootstrap.errors import ConfigurationError
from bootstrap.globs import Globs

# Expectations printed by `PurePosixPath.full_match` of CPython 3.13.0.
CASES = [
    ("tests", "tests/**", False),
    ("tests/a", "tests/**", True),
    ("tests/a/b", "tests/**", True),
    ("a/tests/b", "tests/**", False),
    ("a/tests/b", "**/tests/**", True),
    ("tests/b", "**/tests/**", True),
    ("conftest.py", "**/conftest.py", True),
    ("a/b/conftest.py", "**/conftest.py", True),
    ("a/conftest.py", "conftest.py", False),
    ("a/x.pth", "**/*.pth", True),
    (".hidden/x", "*/x", True),
    (".hidden", "*", True),
    ("a/b", "*", False),
    ("a/b", "**", True),
    ("a", "**", True),
    ("a\nb", "a?b", True),
    ("a\nb", "*", True),
    ("axxb", "a**b", True),
    ("a/b", "a**b", False),
    ("a/b", "a/**/b", True),
    ("a/x/y/b", "a/**/b", True),
    ("a/x/y/c", "a/**/b", False),
    ("a/b/b", "**/b", True),
    ("a/b/c/b/d", "**/b/**/d", True),
    ("a/b", "a/**/**/b", True),
    ("a/b", "./a//b/", True),
    ("A", "a", False),
    ("a", "[!b]", True),
    ("b", "[!b]", False),
    ("c", "[a-c]", True),
    ("-", "[a-]", True),
    ("]", "[]]", True),
    ("[a", "[a", True),
    ("x[", "x[[]", True),
    ("a.b", "a.b", True),
    ("axb", "a.b", False),
    ("a\\b", "a\\b", True),
    ("\u00e9", "?", True),
    ("\udcff", "?", True),
]


@pytest.mark.parametrize(("path", "pattern", "expected"), CASES)
def test_a_pattern_matches_as_in_python_313(path: str, pattern: str, *, expected: bool) -> None:
    """The table holds on every Python."""
    assert Globs([pattern])(path.encode("utf-8", "surrogateescape")) is expected


@pytest.mark.skipif(sys.version_info < (3, 13), reason="machine lacks: PurePath.full_match")
def test_the_table_is_what_python_says() -> None:
    """The table is checked against the interpreter where it has the method."""
    for path, pattern, expected in CASES:
        assert PurePosixPath(path).full_match(pattern) is expected  # type: ignore[attr-defined]


def test_any_pattern_of_a_set_matches() -> None:
    """A set is the union of its patterns, and the empty set matches nothing."""
    globs = Globs(["a/*", "**/c"])
    assert [globs(path) for path in (b"a/x", b"x/c", b"c", b"x/a")] == [True, True, True, False]
    assert not Globs()(b"a")


def test_a_set_never_matches_a_slash() -> None:
    """One component's pattern cannot reach over its end."""
    assert not Globs(["a[!x]b"])(b"a/b")


@pytest.mark.parametrize("pattern", ["", ".", "/etc/passwd", "../x", "a/../b", "a\0b"])
def test_a_pattern_outside_the_workspace_is_refused(pattern: str) -> None:
    """A pattern that can match nothing below the workspace is a configuration error."""
    with pytest.raises(ConfigurationError, match="pattern"):
        Globs([pattern])


def test_a_long_path_takes_linear_time() -> None:
    """Neither a deep path nor a long name makes a nested pattern explode."""
    globs = Globs(["**/a/**/a/**/a/**/b", "*a*a*a*a*b"])
    started = time.monotonic()
    assert not globs(b"/".join([b"a"] * 2000))
    assert not globs(b"a" * 255)
    assert time.monotonic() - started < 30
