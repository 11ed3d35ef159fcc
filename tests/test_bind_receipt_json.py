"""Strict JSON and identifiers, as every module that reads foreign bytes uses them."""

from __future__ import annotations

import json

import pytest

from bootstrap.bind_receipt import (
    MAX_DEPTH,
    MAX_INTEGER_CHARS,
    StrictJsonError,
    is_identifier,
    load_json,
)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[" * 100_000, id="100000 brackets"),
        pytest.param(b'{"a":' * 100_000, id="100000 objects"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="100000 closed brackets"),
        pytest.param(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), id="one level too deep"),
        pytest.param(b'{"a":' * 65 + b"1" + b"}" * 65, id="one object too deep"),
        pytest.param(b"9" * 5000, id="5000 digits"),
        pytest.param(b"-" + b"9" * MAX_INTEGER_CHARS, id="one character too many"),
        pytest.param(b"9" * 1_000_000, id="a million digits"),
        pytest.param(b"1e999", id="overflow"),
        pytest.param(b"-1" + b"0" * 400 + b".5", id="overflow without exponent"),
        pytest.param(b"NaN", id="nan"),
        pytest.param(b"-Infinity", id="infinity"),
        pytest.param(b'{"a":1,"a":1}', id="key twice"),
        pytest.param(b'[{"a":{"b":1,"\\u0062":2}}]', id="key twice by escape, nested"),
        pytest.param(b'"\\ud800"', id="lone surrogate"),
        pytest.param(b'{"\\uDFFF":1}', id="lone surrogate as key"),
        pytest.param(b'"\xed\xa0\x80"', id="encoded surrogate"),
        pytest.param(b'"\xc0\xaf"', id="overlong"),
        pytest.param(b"\xef\xbb\xbf1", id="byte order mark"),
        pytest.param(b"1 2", id="trailing data"),
        pytest.param(b"", id="empty"),
        pytest.param(b"'a'", id="single quotes"),
        pytest.param(b"[1,]", id="comma"),
        pytest.param(b"01", id="leading zero"),
        pytest.param("\uff11".encode(), id="full-width digit"),
        pytest.param(b"\x00", id="nul"),
        pytest.param(b'"\n"', id="raw line end in a string"),
        pytest.param(b"\xa01", id="no-break space"),
    ],
)
def test_load_json_refuses(data: bytes) -> None:
    """Whatever is not strict JSON raises StrictJsonError, in one printable line."""
    with pytest.raises(StrictJsonError) as caught:
        load_json(data)
    assert str(caught.value).isprintable()


def test_load_json_reads_what_is_strict() -> None:
    """The limits themselves are allowed, and a pair of surrogates is one character."""
    deepest = load_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert json.dumps(deepest) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert load_json(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH) is not None
    assert load_json(b"9" * MAX_INTEGER_CHARS) == 10**MAX_INTEGER_CHARS - 1
    assert load_json(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"
    assert load_json(b'[{"a":1},{"a":1}]') == [{"a": 1}, {"a": 1}]
    assert load_json(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001
    assert load_json(b" \t\r\n1e-999 ") == 0.0


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a", True),
        ("provider/model:v1.2@2026-11-30+x", True),
        ("~" * 256, True),
        ("..", True),
        ("~" * 257, False),
        ("", False),
        ("-model", False),
        ("model\n", False),
        ("\nmodel", False),
        ("mo del", False),
        ("model\t", False),
        ("model\x00", False),
        ("model\x7f", False),
        ("mod\u0435l", False),
        ("\u202emodel", False),
        ("\uff4dodel", False),
        ("model\ud800", False),
        (b"model", False),
        (None, False),
        (1, False),
    ],
)
def test_identifier(text: object, holds: bool) -> None:  # noqa: FBT001 - a table's column
    """Visible ASCII alone, whole, and never something a command takes for a flag."""
    assert is_identifier(text) is holds
