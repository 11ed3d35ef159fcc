"""The generation of a workspace and its attempts: minted once, read strictly, never reused."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from bootstrap.bind_receipt import is_identifier
from bootstrap.errors import (
    ConfigurationError,
    LockHeldError,
    StorageError,
    TamperedStateError,
    UnsafeFileError,
    UsageError,
)
from bootstrap.files import open_directory
from bootstrap.state import (
    Frozen,
    Generation,
    State,
    boot_id,
    create_attempt,
    lock,
    machine_id,
    mint_generation,
    mint_id,
    open_attempt,
    open_state,
    read_generation,
    require_in_force,
    write_generation,
)
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME: Final = "generation.json"
ATTEMPT: Final = "att-20261130T214455Z-" + "0" * 32
FROZEN: Final = Frozen(
    model_id="model-a",
    prompt_sha256="a" * 64,
    scorer={"argv": ["/usr/bin/pytest"], "files": {"/usr/bin/pytest": "b" * 64}},
    config_sha256="c" * 64,
)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """Open the state of a fresh workspace."""
    (tmp_path / "workspace").mkdir()
    with open_state(tmp_path / "workspace", tmp_path / "state", create=True) as opened:
        yield opened


def minted(state: State, frozen: Frozen = FROZEN) -> Generation:
    """Mint a generation and write it as one in force."""
    with open_directory(state.workspace) as workspace:
        generation = replace(mint_generation(state, workspace, frozen), status="in_force")
    write_generation(state, generation)
    return generation


def test_ids_are_identifiers_and_never_the_same() -> None:
    """Prefix, UTC time whatever the zone given, 32 hex digits; a thousand in one second differ."""
    zone = timezone(timedelta(hours=5))
    ids = {mint_id("gen", datetime(2026, 12, 1, 2, 44, 55, tzinfo=zone)) for _ in range(1000)}
    assert len(ids) == 1000
    for text in ids:
        assert re.fullmatch(r"gen-20261130T214455Z-[0-9a-f]{32}", text)
        assert is_identifier(text)
    assert mint_id("att", datetime.now(UTC)).startswith("att-")


def test_a_generation_is_read_as_it_was_written(state: State) -> None:
    """Nothing before the first; then every field, frozen ones included."""
    assert read_generation(state) is None
    first = minted(state)
    assert read_generation(state) == first
    second = minted(state, Frozen(model_id="model-b"))
    assert read_generation(state) == second
    assert second.generation != first.generation
    assert (state.directory.path / NAME).stat().st_mode & 0o777 == 0o600
    assert os.listdir(state.directory.path) == [NAME]


def test_a_generation_names_machine_boot_and_workspace(state: State) -> None:
    """The ids are the system's own, and the directory is the one that was opened."""
    generation, status = minted(state), os.stat(state.workspace)
    assert generation.workspace_device == status.st_dev
    assert generation.workspace_inode == status.st_ino
    assert (generation.machine_id, generation.boot_id) == (machine_id(), boot_id())
    with suppress(FileNotFoundError):
        assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_generation_is_minted_for_the_workspace_that_was_named(
    state: State, tmp_path: Path
) -> None:
    """A workspace that was swapped after the state was opened gets none."""
    (tmp_path / "workspace").rename(tmp_path / "old")
    (tmp_path / "workspace").mkdir()
    with open_directory(state.workspace) as swapped, pytest.raises(ConfigurationError):
        mint_generation(state, swapped, FROZEN)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"status": "pending"}, "not finished"),
        ({"machine_id": "0" * 32}, "another machine"),
        ({"boot_id": "another"}, "another boot"),
        ({"boot_id": None}, "another boot"),
        ({"workspace_inode": 1}, "another directory"),
        ({"workspace_device": 1}, "another directory"),
    ],
)
def test_a_generation_is_in_force_only_where_it_was_minted(
    state: State, change: dict[str, Any], found: str
) -> None:
    """Unfinished, of another machine, boot or directory: bootstrap first, status 78."""
    generation = minted(state)
    with open_directory(state.workspace) as workspace:
        assert require_in_force(generation, workspace) is generation
        with pytest.raises(ConfigurationError, match=found) as caught:
            require_in_force(replace(generation, **change), workspace)
        assert caught.value.status == 78
        with pytest.raises(ConfigurationError, match="bootstrap` first"):
            require_in_force(None, workspace)


def _document(state: State) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((state.directory.path / NAME).read_bytes())
    return document


def _assert_tampered(state: State, content: bytes | dict[str, Any]) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (state.directory.path / NAME).write_bytes(data)
    with pytest.raises(TamperedStateError, match=NAME) as caught:
        read_generation(state)
    assert caught.value.status == 77


def test_a_generation_file_with_other_keys_is_refused(state: State) -> None:
    """Each key left out, and one more at either level, is no file of the runner's."""
    minted(state)
    good = _document(state)
    frozen = good["frozen"]
    _assert_tampered(state, {**good, "x": 1})
    _assert_tampered(state, {**good, "frozen": {**frozen, "x": 1}})
    for key in good:
        _assert_tampered(state, {name: good[name] for name in good if name != key})
    for key in frozen:
        rest = {name: frozen[name] for name in frozen if name != key}
        _assert_tampered(state, {**good, "frozen": rest})


@pytest.mark.parametrize("value", [0, True, 1.0, "", "x\n", [], {}, -1])
def test_a_generation_file_with_other_values_is_refused(state: State, value: object) -> None:
    """A value of another kind is refused wherever it stands, and never another error."""
    minted(state)
    good = _document(state)
    for key in ("generation", "status", "generation_version", "frozen"):
        _assert_tampered(state, {**good, key: value})
    for key in ("prompt_sha256", "config_sha256", "model_id"):
        _assert_tampered(state, {**good, "frozen": {**good["frozen"], key: value}})


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"{}", b"[]", b"\xff", b"{} {}", b"[" * 100_000, b"9" * 5000, b" " * (1 << 21)],
)
def test_a_generation_file_that_is_no_such_document_is_refused(
    state: State, content: bytes
) -> None:
    """Whatever the bytes are, the refusal is one line that names the file."""
    _assert_tampered(state, content)


def test_a_generation_file_with_a_flipped_byte_is_no_other_error(state: State) -> None:
    """Every byte changed in turn: refused, or read as the values it then spells."""
    minted(state)
    good = (state.directory.path / NAME).read_bytes()
    for place in range(len(good)):
        content = bytearray(good)
        content[place] ^= 1
        (state.directory.path / NAME).write_bytes(content)
        with suppress(TamperedStateError):
            assert isinstance(read_generation(state), Generation)


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.mkdir(),
        os.mkfifo,
        lambda path: (path.touch(), path.with_name("x").hardlink_to(path)),
    ],
)
def test_a_generation_file_that_is_no_file_of_its_own_is_refused(
    state: State, plant: Callable[[Path], object]
) -> None:
    """A link, directory, FIFO or hard link is not read, and does not hang."""
    plant(state.directory.path / NAME)
    with pytest.raises(TamperedStateError):
        read_generation(state)


def test_the_lock_of_a_state_is_its_own(state: State, tmp_path: Path) -> None:
    """Two workspaces do not wait for each other; two runners of one do."""
    (tmp_path / "other").mkdir()
    with (
        open_state(tmp_path / "other", tmp_path / "state", create=True) as other,
        lock(state, 0),
        lock(other, 0),
        pytest.raises(LockHeldError),
        lock(state, 0),
    ):
        pass


def test_an_attempt_directory_is_made_once_and_opened_again(state: State) -> None:
    """It is private, empty, and nothing of an earlier one."""
    with create_attempt(state, ATTEMPT) as made, open_attempt(state, ATTEMPT) as opened:
        assert os.path.samestat(os.fstat(made.fd), os.fstat(opened.fd))
        assert os.fstat(made.fd).st_mode & 0o777 == 0o700
        assert os.listdir(made.fd) == []
        assert made.path == state.directory.path / "attempts" / ATTEMPT


@pytest.mark.parametrize(
    "plant",
    [
        lambda path: path.mkdir(),
        lambda path: path.touch(),
        lambda path: path.symlink_to("/"),
        lambda path: path.symlink_to("missing"),
    ],
)
def test_an_attempt_that_was_made_by_somebody_else_is_never_used(
    state: State, plant: Callable[[Path], None]
) -> None:
    """A directory, file or link with its name is an error, not a place to write to."""
    (state.directory.path / "attempts").mkdir()
    plant(state.directory.path / "attempts" / ATTEMPT)
    with pytest.raises(TamperedStateError, match="nothing there yet"):
        create_attempt(state, ATTEMPT)


@pytest.mark.parametrize("plant", [lambda path: path.touch(), lambda path: path.symlink_to("/")])
def test_attempts_that_are_no_directory_are_refused(
    state: State, plant: Callable[[Path], None]
) -> None:
    """The directory of all attempts is no link either."""
    plant(state.directory.path / "attempts")
    with pytest.raises(TamperedStateError):
        create_attempt(state, ATTEMPT)
    with pytest.raises(UnsafeFileError):
        open_attempt(state, ATTEMPT)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "/", "att-", "a/b", "x" * 10_000),
        *(ATTEMPT + "\n", ATTEMPT + "/x", "../" + ATTEMPT, ATTEMPT + "\0"),
        *("gen-" + ATTEMPT[4:], ATTEMPT.upper(), ATTEMPT[:-1] + "\u0430"),
    ],
)
def test_only_the_form_of_an_id_becomes_a_path(state: State, text: str) -> None:
    """What a person typed is compared with the form before anything is opened."""
    with pytest.raises(UsageError) as caught:
        open_attempt(state, text)
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError, match="mint_id"):
        create_attempt(state, text)


def test_an_attempt_that_is_not_there_is_missing(state: State) -> None:
    """The caller learns that it is missing, and decides what that means."""
    with pytest.raises(UnsafeFileError) as caught:
        open_attempt(state, ATTEMPT)
    assert caught.value.reason == "missing"


@needs("plain-user")
def test_state_that_cannot_be_written_is_named(state: State) -> None:
    """The message says which file could not be written, and why."""
    state.directory.path.chmod(0o500)
    with pytest.raises(StorageError, match=f"{NAME}.*Permission denied"):
        minted(state)
