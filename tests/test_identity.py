"""attempt.json: what was frozen is read back, and nothing else is."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from bootstrap.errors import TamperedStateError
from bootstrap.files import Directory, open_directory
from bootstrap.freeze import FrozenCommand
from bootstrap.identity import (
    NAME,
    command_from_json,
    command_to_json,
    read_identity,
    write_identity,
)
from bootstrap.proctable import ProcessId
from tests.attempts import identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bootstrap.identity import AttemptIdentity

ATTEMPT: Final = "att-20261130T214455Z-" + "1" * 32


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    """Open the directory of one attempt."""
    with open_directory(tmp_path) as opened:
        yield opened


def made(directory: Directory, **changes: object) -> AttemptIdentity:
    """Return an identity and write it."""
    exchange = directory.path / f"attempt-exchange-{'0' * 16}"
    whole = identity(directory.path, ATTEMPT, exchange, **changes)
    write_identity(directory, whole)
    return whole


def test_an_identity_is_read_as_it_was_written(directory: Directory) -> None:
    """Paths and words of any bytes included, with an agent and without, captured or not."""
    agent = FrozenCommand(("/bin/sh", "-c", "echo 50% \u00e9"), {})
    processes = {"runner": ProcessId(1, 2), "agent": ProcessId(3, 4)}
    for changes in (
        {},
        {"agent": agent, "processes": processes, "diff": None, "boot_id": None, "baseline": "g"},
    ):
        whole = made(directory, **changes)
        assert read_identity(directory, ATTEMPT) == whole
    data = (directory.path / NAME).read_bytes()
    assert data.isascii()
    assert data.endswith(b"}\n")


def test_the_identity_of_another_attempt_is_refused(directory: Directory) -> None:
    """A copied directory must not be judged, or consumed, under a second name."""
    made(directory)
    with pytest.raises(TamperedStateError, match="another attempt"):
        read_identity(directory, ATTEMPT[:-1] + "2")


def written(directory: Directory) -> dict[str, Any]:
    """Return the document of a whole identity with an agent and a process."""
    agent = FrozenCommand(("/bin/sh",), {"/bin/sh": "0" * 64})
    made(directory, agent=agent, processes={"runner": ProcessId(1, 2)})
    return dict(json.loads((directory.path / NAME).read_bytes()))


def refused(directory: Directory, document: object) -> None:
    """Require that a document is refused in one line."""
    (directory.path / NAME).write_text(json.dumps(document))
    with pytest.raises(TamperedStateError) as caught:
        read_identity(directory, ATTEMPT)
    assert "\n" not in str(caught.value)


def test_a_document_without_a_key_or_with_another_kind_of_value_is_refused(
    directory: Directory,
) -> None:
    """Each key in turn is dropped, and given values of every other kind."""
    whole = written(directory)
    for key in whole:
        refused(directory, {name: value for name, value in whole.items() if name != key})
        for value in (0.5, [1], {"argv": [1], "files": {}}, {"path": 1, "inside": None}, True):
            if key != "isolation" or not isinstance(value, dict):
                refused(directory, whole | {key: value})
    for nested in ("scorer", "agent", "prompt", "diff"):
        for key in whole[nested]:
            fewer = {name: value for name, value in whole[nested].items() if name != key}
            refused(directory, whole | {nested: fewer})
    refused(directory, whole | {"attempt_version": 2})
    refused(directory, whole | {"exchange": str(directory.path / "elsewhere")})
    refused(directory, [whole])


def test_damaged_bytes_are_never_another_error(directory: Directory) -> None:
    """Cut at every place, or with any byte flipped, it is read whole or refused."""
    whole = made(directory)
    path = directory.path / NAME
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :]):
            path.write_bytes(damaged)
            try:
                assert read_identity(directory, ATTEMPT).attempt_id == whole.attempt_id
            except TamperedStateError:
                continue


@pytest.mark.parametrize("kind", ["missing", "link", "hard link", "fifo", "directory", "large"])
def test_what_is_no_file_of_the_runners_is_refused(directory: Directory, kind: str) -> None:
    """It is read without following a link or waiting, and only up to a limit."""
    made(directory)
    path = directory.path / NAME
    aside = path.rename(path.with_name("aside"))
    if kind == "link":
        path.symlink_to(aside)
    elif kind == "hard link":
        path.hardlink_to(aside)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(aside.read_bytes() + b" " * (1 << 20))
    with pytest.raises(TamperedStateError):
        read_identity(directory, ATTEMPT)


@pytest.mark.parametrize("word", ["a b", "50%41", "\u00e9\u2028\n", "\udcff\udcfe", "$'{}"])
def test_a_command_of_any_words_survives_json(word: str) -> None:
    """Words are bytes; printable ASCII stays readable, and strict JSON can hold the rest."""
    command = FrozenCommand(("/bin/true", word), {f"/{word}": "0" * 64})
    document = json.loads(json.dumps(command_to_json(command)))
    assert command_from_json(document) == command
    text = document["argv"][1]
    assert text.isascii()
    assert text.isprintable()
    assert (text == word) is (word.isascii() and word.isprintable() and "%" not in word)
