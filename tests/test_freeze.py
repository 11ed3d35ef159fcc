"""A frozen command: its program resolved once, every file that its words name digested."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import ConfigurationError
from bootstrap.freeze import FIXED_PATH, FrozenCommand, changed_files, freeze_command, search_path
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path


def program(directory: Path, name: str = "scorer", text: str = "#!/bin/sh\n") -> Path:
    """Write an executable file."""
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def freeze(directory: Path, *argv: str, in_tree: bool = False) -> FrozenCommand:
    """Freeze a command given by a caller who stands in a directory."""
    path = search_path([directory / "bin"])
    return freeze_command(argv, path=path, cwd=directory, arguments_from_cwd=not in_tree)


def test_program_and_file_arguments_are_digested(tmp_path: Path) -> None:
    """Each regular file by its absolute path; a word that names none is only a word."""
    script = program(tmp_path)
    (tmp_path / "rules.txt").write_text("rules")
    frozen = freeze(tmp_path, "./scorer", "rules.txt", "--flag", "nowhere", str(tmp_path))
    rules = str(tmp_path / "rules.txt")
    assert frozen.argv == (str(script), rules, "--flag", "nowhere", str(tmp_path))
    assert frozen.files == {
        str(script): sha256(script.read_bytes()).hexdigest(),
        rules: sha256(b"rules").hexdigest(),
    }


def test_in_a_tree_relative_arguments_are_the_trees(tmp_path: Path) -> None:
    """`tests/test_x.py` of a scorer that runs in {tree} is no file of the caller's."""
    script = program(tmp_path)
    (tmp_path / "rules.txt").write_text("rules")
    frozen = freeze(tmp_path, "./scorer", "rules.txt", in_tree=True)
    assert frozen.argv == (str(script), "rules.txt")
    assert list(frozen.files) == [str(script)]


def test_a_program_without_a_slash_is_found_on_the_given_path_alone(tmp_path: Path) -> None:
    """The operator's additions first, then the fixed list; never the caller's directory."""
    (tmp_path / "bin").mkdir()
    ours = program(tmp_path / "bin", "sh")
    assert freeze(tmp_path, "sh").argv == (str(ours),)
    program(tmp_path, "only-here")
    with pytest.raises(ConfigurationError, match="only-here"):
        freeze(tmp_path, "only-here")
    assert search_path([]) == FIXED_PATH
    assert search_path([tmp_path]) == f"{tmp_path}:{FIXED_PATH}"


@pytest.mark.parametrize("word", ["./nowhere", "./plain", "./directory", "./fifo", "./dangling"])
def test_what_cannot_be_executed_is_refused(tmp_path: Path, word: str) -> None:
    """A missing file, one without the bit, a directory, a FIFO, a link to nothing."""
    (tmp_path / "plain").write_text("")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo", 0o755)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(ConfigurationError, match="program"):
        freeze(tmp_path, word)


@needs("plain-user")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    """What cannot be digested cannot be compared later."""
    program(tmp_path)
    (tmp_path / "secret").write_text("")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(ConfigurationError, match="readable"):
        freeze(tmp_path, "./scorer", "secret")


def test_a_link_is_frozen_by_what_it_leads_to(tmp_path: Path) -> None:
    """Pointing it elsewhere is a change, as is changing its target."""
    program(tmp_path, "one", "1")
    program(tmp_path, "two", "2")
    (tmp_path / "link").symlink_to("one")
    frozen = freeze(tmp_path, "./link")
    assert changed_files(frozen) == ()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("two")
    (finding,) = changed_files(frozen)
    assert (finding.field, finding.found) == ("scorer", sha256(b"2").hexdigest())


def test_each_file_that_changed_is_a_finding(tmp_path: Path) -> None:
    """Edited, removed, replaced by a directory, a FIFO or a link to nothing."""
    script = program(tmp_path)
    names = ("edited", "removed", "directory", "fifo", "dangling", "same")
    for name in names:
        (tmp_path / name).write_text(name)
    frozen = freeze(tmp_path, "./scorer", *names)
    assert changed_files(frozen) == ()
    (tmp_path / "edited").write_text("other")
    for name in names[1:5]:
        (tmp_path / name).unlink()
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    found = changed_files(frozen)
    assert [item.expected.split()[0] for item in found] == [str(tmp_path / n) for n in names[:5]]
    assert all(item.field == "scorer" for item in found)
    assert str(script) not in " ".join(item.expected for item in found)


def test_names_of_any_bytes_are_frozen(tmp_path: Path) -> None:
    """A word is bytes: newlines, and what is no UTF-8, are nothing special."""
    name = os.fsdecode(b"a\nb\xff")
    (tmp_path / name).write_text("x")
    program(tmp_path)
    frozen = freeze(tmp_path, "./scorer", name)
    assert frozen.argv[1] == str(tmp_path / name)
    assert changed_files(frozen) == ()
