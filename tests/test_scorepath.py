from __future__ import annotations

import pytest

from bootstrap.errors import ConfigurationError
from bootstrap.scorepath import check_score_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("score.json", b"score.json"),
        ("scores/", b"scores"),
        ("./out//scores/.", b"out/scores"),
        ("..scores", b"..scores"),
        ("-rf", b"-rf"),
        ("a\nb", b"a\nb"),
        ("\udcff\udcfe", b"\xff\xfe"),
        ("n" * 255, b"n" * 255),
    ],
)
def test_a_score_path_has_one_spelling(text: str, path: bytes) -> None:
    """What names the same place becomes the same bytes, without a trailing slash."""
    assert check_score_path(text) == path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "nothing"),
        (".", "the workspace itself"),
        ("./", "the workspace itself"),
        ("/etc/passwd", "an absolute path"),
        ("/", "an absolute path"),
        ("..", "a '..'"),
        ("a/../../b", "a '..'"),
        ("a\0b", "a NUL byte"),
        ("\ud800", "text that no file name can hold"),
        ("n" * 256, "too long"),
        ("a/" * 2048, "too long"),
    ],
)
def test_a_bad_score_path_is_a_configuration_error(text: str, found: str) -> None:
    """A path that leaves the workspace, or names all of it, is refused before any look-up."""
    with pytest.raises(ConfigurationError, match=found) as refusal:
        check_score_path(text)
    assert refusal.value.status == 78
    assert str(refusal.value).isprintable()
