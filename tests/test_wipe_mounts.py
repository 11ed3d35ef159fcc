from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bootstrap.files import open_directory
from bootstrap.mounts import mount_of, mount_points, path_of
from tests.machine import needs
from tests.trees import make_deep, names_in, photograph
from tests.wiper import both_ways, wipe_with_mounts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs("root", "mount")


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """Lay out a workspace with a score tree, and an outside that may be mounted into it."""
    (tmp_path / "outside" / "d").mkdir(parents=True)
    (tmp_path / "outside" / "d" / "kept.json").write_text("kept")
    (tmp_path / "file").write_text("kept")
    workspace = tmp_path / "ws"
    (workspace / "scores" / "a b\n\\" / "inner").mkdir(parents=True)
    (workspace / "scores" / "score.json").write_text("{}")
    return workspace


BENEATH = {
    "bind mount": 'mount --bind outside "ws/scores/a b\n\\\\/inner"',
    "other filesystem": 'mount -t tmpfs tmpfs "ws/scores/a b\n\\\\/inner"',
    "file": "mount --bind file ws/scores/score.json",
    "stacked": 'for i in 1 2; do mount --bind outside "ws/scores/a b\n\\\\/inner"; done',
    "bind mount of a mount": "mount --bind ws ws\nmount --bind outside ws/scores/a*/inner",
}


@both_ways
@pytest.mark.parametrize("mounts", BENEATH.values(), ids=BENEATH.keys())
def test_a_mount_beneath_is_refused_and_the_tree_left(
    ws: Path, mounts: str, flags: tuple[str, ...]
) -> None:
    """`rmtree`, `rm --one-file-system` and `find -xdev` all delete what is bind-mounted here."""
    before = photograph(ws.parent)
    outcome = wipe_with_mounts(mounts, ws, *flags)
    assert outcome.status == 77, outcome
    assert "got a mount at scores/" in outcome.error
    assert outcome.error.isascii()
    assert photograph(ws.parent) == before


@both_ways
@pytest.mark.parametrize("flag", [(), ("--empty-mounts",)])
def test_a_mount_beneath_is_not_emptied(
    ws: Path, flag: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    """The operator's word for a mounted score path does not cover mounts in it."""
    before = photograph(ws.parent)
    mounts = "mount --bind ws/scores ws/scores\nmount --bind outside ws/scores/a*/inner"
    outcome = wipe_with_mounts(mounts, ws, *flag, *flags)
    assert outcome.status == 77, outcome
    assert photograph(ws.parent) == before


@both_ways
def test_a_score_path_that_is_a_mount_is_refused(ws: Path, flags: tuple[str, ...]) -> None:
    """Without the operator's word a mounted score directory is left as it is."""
    before = photograph(ws.parent)
    outcome = wipe_with_mounts("mount --bind outside ws/scores", ws, *flags)
    assert outcome.status == 77
    assert "--score-mount" in outcome.error
    assert photograph(ws.parent) == before


@both_ways
def test_a_score_path_that_is_a_mount_is_emptied_on_request(
    ws: Path, flags: tuple[str, ...]
) -> None:
    """With it the mounted directory stays and all in it goes, however deep."""
    make_deep(ws.parent / "outside" / "deep", 300)
    before = photograph(ws)
    outcome = wipe_with_mounts("mount --bind outside ws/scores", ws, "--empty-mounts", *flags)
    assert outcome.wiped == [("scores", True, 304)], outcome
    assert names_in(ws.parent / "outside") == set()
    assert photograph(ws) == before


def test_a_mounted_file_is_never_emptied(ws: Path) -> None:
    """A file that is mounted over a score path cannot be removed from there."""
    before = photograph(ws.parent)
    mounts = "mount --bind file ws/scores/score.json"
    with_file = wipe_with_mounts(mounts, ws, "--empty-mounts")
    assert with_file.status == 77
    assert photograph(ws.parent) == before


@both_ways
def test_a_parent_on_another_mount_is_refused(ws: Path, flags: tuple[str, ...]) -> None:
    """Paths are looked up in the workspace's own mount only."""
    before = photograph(ws.parent)
    outcome = wipe_with_mounts("mount --bind outside ws/scores", ws, *flags, path="scores/d")
    assert outcome.status == 77
    assert "got a mount at scores" in outcome.error
    assert photograph(ws.parent) == before


HIDDEN = """
mount --bind ws mirror
mount --bind outside mirror/scores/a*/inner
"""


@both_ways
def test_a_mount_that_the_table_shows_elsewhere_is_not_entered(
    ws: Path, flags: tuple[str, ...]
) -> None:
    """A directory that is mounted upon by another path fails to go, and what is there stays."""
    (ws.parent / "mirror").mkdir()
    before = photograph(ws.parent / "outside")
    outcome = wipe_with_mounts(HIDDEN, ws, *flags)
    assert outcome.status == 77, outcome
    assert "mount" in outcome.error
    assert photograph(ws.parent / "outside") == before


def test_a_workspace_on_a_mount_of_its_own_is_wiped(ws: Path) -> None:
    """A mount around the workspace, or beside the score path, is nobody's business."""
    mounts = (
        "mount -t tmpfs tmpfs ws\nmkdir -p ws/scores/d ws/scores2\nmount --bind outside ws/scores2"
    )
    outcome = wipe_with_mounts(mounts, ws)
    assert outcome.wiped == [("scores", True, 2)], outcome


def test_the_mount_table_names_this_directory(tmp_path: Path) -> None:
    """The three questions about mounts agree with each other."""
    with open_directory(tmp_path) as directory:
        path = path_of(directory.fd)
        assert path == os.fsencode(tmp_path.resolve())
        assert any((path + b"/").startswith(point.rstrip(b"/") + b"/") for point in mount_points())
        assert mount_of(directory.fd)[1] > 0
