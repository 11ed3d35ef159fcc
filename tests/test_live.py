"""Live inputs: opened where an agent may write, without following it anywhere."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import UnsafeFileError
from bootstrap.files import AgentPath, open_directory
from bootstrap.live import LivePath, open_live, path_from_json, path_to_json, place

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Make a workspace that is reached by its real path and by a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to("real")
    return tmp_path / "real"


@contextmanager
def opened(workspace: Path, live: LivePath, *, may_be_link: bool = False) -> Iterator[bytes]:
    """Open a live file as an attempt would, and read it."""
    with open_directory(workspace) as directory:
        fd = open_live(live, directory, may_be_link=may_be_link)
        try:
            yield os.read(fd, 100)
        finally:
            os.close(fd)


def reason(workspace: Path, live: LivePath, *, may_be_link: bool = False) -> str:
    """Return why a live file is not opened."""
    with (
        pytest.raises(UnsafeFileError) as caught,
        opened(workspace, live, may_be_link=may_be_link),
    ):
        pass
    return caught.value.reason


def test_a_path_lies_inside_by_its_spelling_or_by_its_real_place(workspace: Path) -> None:
    """Through the workspace's own name, its real path, or a link from elsewhere."""
    named = workspace.parent / "named"
    (workspace.parent / "elsewhere").symlink_to("real")
    for path in (
        named / "a" / "diff",
        workspace / "a" / "diff",
        workspace.parent / "elsewhere/a/diff",
    ):
        (workspace / "a").mkdir(exist_ok=True)
        assert place(path, named, workspace) == LivePath(path, AgentPath(b"a/diff"))


def test_a_link_in_the_workspace_moves_no_path_out_of_it(workspace: Path) -> None:
    """Else an agent could have its diff read as a trusted file of the operator's."""
    (workspace / "out").symlink_to(workspace.parent)
    live = place(workspace / "out" / "diff", workspace, workspace)
    assert live.inside == b"out/diff"
    (workspace.parent / "diff").write_text("foreign")
    assert reason(workspace, live) in ("not_regular", "missing", "unreadable")


def test_a_path_elsewhere_is_the_operators(workspace: Path) -> None:
    """A name that only begins like the workspace's is not in it."""
    for name in ("realm/diff", "diff"):
        assert place(workspace.parent / name, workspace, workspace).inside is None


@pytest.mark.parametrize("inside", [True, False])
def test_only_a_regular_file_of_its_own_is_opened(workspace: Path, inside: bool) -> None:  # noqa: FBT001 - a case
    """A link, a FIFO, a directory, a second link: none is followed, waited for or read."""
    directory = workspace if inside else workspace.parent
    (directory / "file").write_text("x")
    (directory / "link").symlink_to("file")
    (directory / "directory").mkdir()
    os.mkfifo(directory / "fifo")
    (directory / "first").write_text("")
    (directory / "second").hardlink_to(directory / "first")

    def at(name: str) -> LivePath:
        return place(directory / name, workspace, workspace)

    with opened(workspace, at("file")) as data:
        assert data == b"x"
    assert reason(workspace, at("nowhere")) == "missing"
    assert reason(workspace, at("link")) in ("not_regular", "unreadable")
    assert reason(workspace, at("fifo")) == "not_regular"
    assert reason(workspace, at("directory")) == "not_regular"
    assert reason(workspace, at("second")) == "links"


def test_a_prompt_may_be_a_link_only_outside(workspace: Path) -> None:
    """A mounted ConfigMap is a link to a link; in the workspace it is the agent's."""
    (workspace.parent / "file").write_text("x")
    (workspace.parent / "link").symlink_to("file")
    (workspace / "link").symlink_to(workspace.parent / "file")
    outside = place(workspace.parent / "link", workspace, workspace)
    with opened(workspace, outside, may_be_link=True) as data:
        assert data == b"x"
    inner = place(workspace / "link", workspace, workspace)
    assert reason(workspace, inner, may_be_link=True) == "not_regular"


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"%41", "m\u00f6".encode(), b"a b/c"])
def test_a_path_of_any_bytes_survives_json(name: bytes) -> None:
    """Percent-encoded as in a URI: ASCII, and reversible whatever the bytes are."""
    text = path_to_json(name)
    assert text.isascii()
    assert text.isprintable()
    assert path_from_json(text) == name
    assert path_to_json(Path(os.fsdecode(name))) == text
