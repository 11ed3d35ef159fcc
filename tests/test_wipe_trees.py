from __future__ import annotations

import errno
import os
import subprocess
import tempfile
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.files import AgentPath, open_directory
from bootstrap.removal import _leave, empty
from bootstrap.wipe import remove_tree, wipe
from tests.machine import needs
from tests.openers import Caller, both_openers
from tests.trees import make_deep, make_wide, names_in, photograph
from tests.wiper import NOBODY, both_ways, wipe_in_child, wipe_with_mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW_FILES = "40"  # an interpreter holds a few itself


@pytest.fixture
def ws() -> Iterator[Path]:
    """Make an empty workspace in memory where that is, and remove it with what pytest cannot."""
    memory = Path("/dev/shm")  # noqa: S108 - the directory is made with a random name
    place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    place.chmod(0o711)
    (place / "ws").mkdir()
    yield place / "ws"
    subprocess.run(["rm", "-rf", place], check=False)


@pytest.mark.timeout(600)  # on a busy machine
@pytest.mark.parametrize(
    ("depth", "flags"), [(60_000, ()), (3_000, ("--walk",))], ids=["openat2", "walk"]
)
def test_a_deep_tree_needs_few_descriptors(ws: Path, depth: int, flags: tuple[str, ...]) -> None:
    """Neither recursion nor descriptors grow with the depth."""
    make_deep(ws / "scores", depth)
    outcome = wipe_in_child(*flags, "--files", FEW_FILES, ws)
    assert outcome.wiped == [("scores", True, depth + 2)], outcome
    assert names_in(ws) == set()


def test_a_wide_directory_needs_constant_memory(ws: Path) -> None:
    """20,000 files are listed and unlinked in a stream."""
    make_wide(ws / "scores", 20_000)
    with open_directory(ws) as workspace:
        tracemalloc.start()
        assert wipe(workspace, [AgentPath(b"scores")])[0].entries == 20_001
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100_000
    assert names_in(ws) == set()


@both_openers
def test_a_bushy_tree_is_flattened_while_its_top_is_listed(call: Caller, tmp_path: Path) -> None:
    """A directory that is renamed up into a listing still being read is removed once."""
    make_wide(tmp_path / "scores", 3_000)
    for number in range(30):
        make_deep(tmp_path / "scores" / str(number), 12)
    with open_directory(tmp_path) as workspace:
        assert call(remove_tree, workspace, "scores") == 3_000 + 30 * 14 + 1
    assert names_in(tmp_path) == set()


@needs("strace")
@pytest.mark.parametrize("error", ["EXDEV", "EPERM", "ENOSPC"])
def test_a_tree_that_cannot_be_renamed_is_removed_in_place(ws: Path, error: str) -> None:
    """Without any rename, 3,000 directories are removed by going down and up."""
    make_deep(ws / "scores", 3_000)
    make_wide(ws / "scores" / "wide", 100)
    renames = "rename,renameat,renameat2"
    before = (
        "strace",
        "-f",
        "--seccomp-bpf",
        "-o",
        os.devnull,
        f"--inject={renames}:error={error}",
    )
    outcome = wipe_in_child("--files", FEW_FILES, ws, before=before)
    assert outcome.wiped == [("scores", True, 3_103)], outcome
    assert names_in(ws) == set()


@needs("strace")
@pytest.mark.parametrize("error", ["EIO", "EPERM", "EROFS"])
@pytest.mark.parametrize("when", [1, 2, 6], ids=["file", "directory", "trash"])
def test_an_error_of_the_disk_is_fatal(ws: Path, when: int, error: str) -> None:
    """A wipe that could not remove something never says that it did."""
    make_deep(ws / "scores", 3)
    inject = f"--inject=unlinkat:error={error}:when={when}"
    before = ("strace", "-f", "--seccomp-bpf", "-o", os.devnull, inject)
    outcome = wipe_in_child(ws, before=before)
    assert outcome.status == 77
    assert os.strerror(getattr(errno, error)) in outcome.error


def test_up_is_taken_only_to_where_one_came_from(ws: Path) -> None:
    """A directory that is moved away while it is emptied does not lead somewhere else."""
    (ws / "a" / "b").mkdir(parents=True)
    came_from = (ws / "a").stat()
    with open_directory(ws / "a" / "b") as below:
        (ws / "a" / "b").rename(ws / "b")
        with pytest.raises(OSError, match="moved"):
            _leave(below.fd, (came_from.st_dev, came_from.st_ino))


def test_an_emptied_directory_stays(ws: Path) -> None:
    """What is emptied in place keeps its own name and mode."""
    make_deep(ws / "scores", 30)
    (ws / "scores").chmod(0o2750)
    with open_directory(ws / "scores") as scores:
        assert empty(scores.fd) == 31
    assert names_in(ws / "scores") == set()
    assert (ws / "scores").stat().st_mode & 0o7777 == 0o2750


def _give_away(top: Path) -> None:
    if os.geteuid() == 0:
        for path in (top, *top.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@both_ways
@pytest.mark.parametrize("mode", [0o555, 0o000, 0o300, 0o666])
def test_a_closed_directory_of_ours_is_removed_by_a_plain_user(
    ws: Path, mode: int, flags: tuple[str, ...]
) -> None:
    """A directory that forbids its owner to list or empty it is no hiding place."""
    for below in ("shallow", "1/2/3/4/5/6/7/8/9/10/11/12"):
        closed = ws / "scores" / below / "closed"
        (closed / "more").mkdir(parents=True)
        (closed / "score.json").write_text("{}")
        _give_away(ws)
        closed.chmod(mode)
    (ws / "scores").chmod(mode)
    outcome = wipe_in_child("--uid", str(NOBODY), *flags, ws)
    assert outcome.wiped == [("scores", True, 20)], outcome
    assert names_in(ws) == set()


@both_ways
@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_a_closed_parent_is_fatal_for_a_plain_user(
    ws: Path, mode: int, flags: tuple[str, ...]
) -> None:
    """`exists()` says no beneath a parent of mode 0000; the wipe says that it cannot tell."""
    (ws / "out" / "scores").mkdir(parents=True)
    _give_away(ws)
    (ws / "out").chmod(mode)
    outcome = wipe_in_child("--uid", str(NOBODY), *flags, ws, "out/scores")
    (ws / "out").chmod(0o700)
    assert outcome.status == 77
    assert "Permission denied" in outcome.error
    assert names_in(ws / "out") == {b"scores"}


@needs("root")
@both_ways
def test_what_a_plain_user_may_not_remove_is_fatal(ws: Path, flags: tuple[str, ...]) -> None:
    """A directory of another user with something in it stays, and the wipe says so."""
    (ws / "scores").mkdir()
    _give_away(ws)
    (ws / "scores" / "theirs").mkdir()
    (ws / "scores" / "theirs" / "score.json").write_text("{}")
    outcome = wipe_in_child("--uid", str(NOBODY), *flags, ws)
    assert outcome.status == 77
    assert "Permission denied" in outcome.error


OVERLAY = """
mount -t tmpfs tmpfs overlay
mkdir overlay/lower overlay/upper overlay/work
cp -a ws/. overlay/lower
mount -t overlay overlay -o lowerdir=overlay/lower,upperdir=overlay/upper,workdir=overlay/work ws
echo new > ws/scores/d/d/new
"""


@needs("root", "mount", "overlay")
@both_ways
def test_a_directory_of_an_image_layer_is_removed(ws: Path, flags: tuple[str, ...]) -> None:
    """What lies in a lower overlay layer cannot be renamed (EXDEV), at any depth."""
    (ws.parent / "overlay").mkdir()
    make_deep(ws / "scores", 40)
    before = photograph(ws)
    outcome = wipe_with_mounts(OVERLAY, ws, *flags)
    assert outcome.wiped == [("scores", True, 43)], outcome
    assert photograph(ws) == before  # the layer itself, below the mount that is gone


FULL = """
mount -t tmpfs -o nr_inodes=8 tmpfs ws
mkdir ws/scores ws/scores/d
while touch "ws/scores/d/$(( i = ${i:-0} + 1 ))" 2> /dev/null; do :; done
"""


@needs("root", "mount")
def test_a_full_disk_can_be_wiped(ws: Path) -> None:
    """No room for a trash directory is no reason to keep a stale score."""
    outcome = wipe_with_mounts(FULL, ws)
    assert outcome.wiped == [("scores", True, 7)], outcome
