from __future__ import annotations

import errno
import os
import socket
import stat
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import WipeError
from bootstrap.files import AgentPath, Directory, open_directory
from bootstrap.scorepath import check_score_path
from bootstrap.wipe import TRASH_PREFIX, Wiped, remove_trash, remove_tree, wipe
from tests.machine import needs
from tests.openers import Caller, both_openers
from tests.trees import make_deep, make_wide, names_in, photograph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCORES = AgentPath(b"scores")


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Directory]:
    """Open an empty workspace."""
    (tmp_path / "ws").mkdir()
    with open_directory(tmp_path / "ws") as workspace:
        yield workspace


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Lay out a directory beside the workspace that nothing may touch."""
    place = tmp_path / "outside"
    (place / "scores").mkdir(parents=True)
    (place / "scores" / "kept.json").write_text("kept")
    (place / "kept.json").write_text("kept")
    return place


@both_openers
def test_no_paths_is_nothing_to_wipe(call: Caller, ws: Directory) -> None:
    """A job without score paths gets an empty list to log."""
    assert call(wipe, ws, []) == ()


@both_openers
def test_a_planted_score_is_removed(call: Caller, ws: Directory) -> None:
    """The file is gone and reported, its neighbour stays."""
    (ws.path / "out").mkdir()
    (ws.path / "out" / "score.json").write_text('{"verdict": "pass"}')
    (ws.path / "out" / "source.py").write_text("code")
    path = AgentPath(b"out/score.json")
    assert call(wipe, ws, [path]) == (Wiped(path, existed=True, entries=1),)
    assert names_in(ws.path / "out") == {b"source.py"}


@both_openers
def test_a_planted_directory_is_removed(call: Caller, ws: Directory) -> None:
    """The whole tree is gone and counted, and no trash stays beside it."""
    (ws.path / "scores" / "a" / "b").mkdir(parents=True)
    (ws.path / "scores" / "a" / "b" / "score.json").write_text("{}")
    assert call(wipe, ws, [SCORES]) == (Wiped(SCORES, existed=True, entries=4),)
    assert names_in(ws.path) == set()


@both_openers
def test_a_missing_path_is_absent(call: Caller, ws: Directory) -> None:
    """Nothing there, or no parent there, is what a wipe is to reach."""
    paths = [SCORES, AgentPath(b"no/such/parent")]
    assert call(wipe, ws, paths) == tuple(Wiped(path, existed=False, entries=0) for path in paths)


@both_openers
@pytest.mark.parametrize("order", [(b"scores", b"scores/a"), (b"scores/a", b"scores")])
def test_paths_may_lie_in_each_other(
    call: Caller, ws: Directory, order: tuple[bytes, bytes]
) -> None:
    """The order of overlapping paths, and a path that is given twice, change nothing."""
    (ws.path / "scores" / "a").mkdir(parents=True)
    paths = [AgentPath(path) for path in (*order, order[0])]
    wiped = call(wipe, ws, paths)
    assert sum(item.entries for item in wiped) == 2
    assert all(item.existed for item in wiped)
    assert names_in(ws.path) == set()


@both_openers
@pytest.mark.parametrize("text", ["scores", "scores/"])
def test_a_link_is_removed_and_its_target_kept(
    call: Caller, ws: Directory, outside: Path, text: str
) -> None:
    """Neither spelling of `ws/scores -> /outside` empties the outside."""
    before = photograph(outside)
    (ws.path / "scores").symlink_to(outside)
    assert call(wipe, ws, [check_score_path(text)])[0].entries == 1
    assert names_in(ws.path) == set()
    assert photograph(outside) == before


@both_openers
def test_a_link_in_a_parent_is_refused(call: Caller, ws: Directory, outside: Path) -> None:
    """`ws/out -> /outside` with the score path `out/scores` stops the job."""
    before = photograph(outside)
    (ws.path / "out").symlink_to(outside)
    with pytest.raises(WipeError, match="a parent that is a link") as refusal:
        call(wipe, ws, [AgentPath(b"out/scores")])
    assert refusal.value.status == 77
    assert photograph(outside) == before


@both_openers
def test_a_dangling_link_in_a_parent_is_not_a_missing_parent(call: Caller, ws: Directory) -> None:
    """What the link names may appear later: the path is not proved absent."""
    (ws.path / "out").symlink_to("later")
    with pytest.raises(WipeError, match="a parent that is a link"):
        call(wipe, ws, [AgentPath(b"out/scores")])


@both_openers
def test_a_file_for_a_parent_is_refused(call: Caller, ws: Directory) -> None:
    """A parent that is no directory was put there by somebody: the job stops."""
    (ws.path / "out").write_text("")
    with pytest.raises(WipeError, match="no directory"):
        call(wipe, ws, [AgentPath(b"out/scores")])


@both_openers
def test_a_refused_path_leaves_the_others_in_place(call: Caller, ws: Directory) -> None:
    """Every path is looked at before the first one is touched."""
    (ws.path / "scores").mkdir()
    (ws.path / "out").symlink_to("/")
    with pytest.raises(WipeError):
        call(wipe, ws, [SCORES, AgentPath(b"out/scores")])
    assert names_in(ws.path) == {b"scores", b"out"}


@both_openers
def test_links_inside_are_removed_and_their_targets_kept(
    call: Caller, ws: Directory, outside: Path
) -> None:
    """A link to a directory, to a file, to nothing, and to a parent: four entries."""
    before = photograph(outside)
    (ws.path / "scores").mkdir()
    for name, target in {
        "d": str(outside),
        "f": f"{outside}/kept.json",
        "n": "no",
        "p": "..",
    }.items():
        (ws.path / "scores" / name).symlink_to(target)
    assert call(wipe, ws, [SCORES])[0].entries == 5
    assert photograph(outside) == before


@both_openers
@pytest.mark.parametrize("path", [b"%s", b"scores/%s"], ids=["at the top", "below"])
@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"-rf", b"::x::y", b"n" * 255, b" ", b"\\"])
def test_any_name_can_be_removed(call: Caller, ws: Directory, name: bytes, path: bytes) -> None:
    """A name is bytes: no option, no line, no text."""
    os.makedirs(os.path.join(os.fsencode(ws.path), path % name, name, name))
    assert call(wipe, ws, [AgentPath(path % name)])[0].entries == 3
    assert names_in(ws.path) <= {b"scores"}


def _make_socket(path: Path) -> None:
    # The path of a test may be longer than the 108 bytes of a socket's address.
    with open_directory(path.parent) as parent, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{parent.fd}/{path.name}")


SPECIAL: Final = {
    "fifo": os.mkfifo,
    "socket": _make_socket,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "mode 0000": lambda path: path.touch(mode=0),
}


@needs("linux")
@both_openers
@pytest.mark.parametrize("path", ["scores", "scores/inside"])
@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
def test_a_special_file_is_removed_unopened(
    call: Caller, ws: Directory, make: Callable[[Path], object], path: str
) -> None:
    """A FIFO does not hang the wipe, and a file that nobody may read is no obstacle."""
    (ws.path / path).parent.mkdir(exist_ok=True)
    make(ws.path / path)
    assert call(wipe, ws, [SCORES])[0].existed
    assert names_in(ws.path) == set()


@needs("root")
@both_openers
def test_a_device_is_removed_unopened(call: Caller, ws: Directory) -> None:
    """A device node is a name like any other."""
    os.mknod(ws.path / "scores", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    assert call(wipe, ws, [SCORES])[0].entries == 1
    assert names_in(ws.path) == set()


@both_openers
@pytest.mark.parametrize("mode", [0o000, 0o444, 0o600])
def test_a_hard_link_loses_its_name_alone(
    call: Caller, ws: Directory, outside: Path, mode: int
) -> None:
    """A runner's file that was linked into a score path keeps mode, owner and bytes."""
    kept = outside / "kept.json"
    kept.chmod(mode)
    (ws.path / "scores").mkdir()
    os.link(kept, ws.path / "scores" / "a")
    os.link(kept, ws.path / "b")
    call(wipe, ws, [SCORES, AgentPath(b"b")])
    status = kept.lstat()
    assert (stat.S_IMODE(status.st_mode), status.st_nlink, status.st_size) == (mode, 1, 4)


@both_openers
def test_an_error_shows_a_hostile_name_escaped(call: Caller, ws: Directory) -> None:
    """A name cannot write a second line or a terminal command into the message."""
    name = b"\x1b[2K\nx\xff"
    (ws.path / os.fsdecode(name)).write_text("")
    with pytest.raises(WipeError) as refusal:
        call(wipe, ws, [AgentPath(name + b"/scores")])
    assert str(refusal.value).isascii()
    assert str(refusal.value).isprintable()


@both_openers
def test_trash_of_a_crash_is_removed(call: Caller, ws: Directory) -> None:
    """What a killed wipe left beside a path goes, of whatever kind; other names stay."""
    (ws.path / "out").mkdir()
    trash = [os.fsdecode(TRASH_PREFIX) + digit * 32 for digit in "0a"]
    (ws.path / "out" / trash[0] / "0" / "deep").mkdir(parents=True)
    (ws.path / "out" / trash[1]).symlink_to("/")
    (ws.path / "out" / (trash[0] + "0")).mkdir()
    assert call(remove_trash, ws, [AgentPath(b"out/scores"), AgentPath(b"no/scores")]) == 4
    assert names_in(ws.path / "out") == {os.fsencode(trash[0] + "0")}


@both_openers
def test_a_tree_of_our_own_is_removed(call: Caller, ws: Directory) -> None:
    """An exchange directory goes with all a child built in it; one that is gone is nothing."""
    make_deep(ws.path / "exchange", 300)
    make_wide(ws.path / "exchange" / "home", 300)
    assert call(remove_tree, ws, "exchange") == 603
    assert call(remove_tree, ws, b"exchange") == 0
    assert names_in(ws.path) == set()


def test_an_error_is_one_line_with_its_four_parts(ws: Directory) -> None:
    """What, expected, found and remedy name the path and the way out."""
    (ws.path / "out").write_text("")
    with pytest.raises(WipeError) as refusal:
        wipe(ws, [AgentPath(b"out/scores")])
    assert isinstance(refusal.value.__cause__, OSError)
    assert refusal.value.__cause__.errno == errno.ENOTDIR
    assert str(refusal.value) == (
        "score path out/scores: expected to be removed and proved absent, "
        "got a parent that is a link or no directory at out; "
        "remove it as its owner, and .attempt-trash-* beside it, then start again"
    )
