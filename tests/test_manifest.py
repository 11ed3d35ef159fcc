"""Manifests: every path of a tree, told the same by other programs, and compared in a stream."""

from __future__ import annotations

import hashlib
import io
import os
import random
import socket
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.differences import compare, verified
from bootstrap.errors import TamperedStateError
from bootstrap.files import open_directory
from bootstrap.globs import Globs
from bootstrap.manifest import Entry, describe, read_manifest, walk, write_manifest
from bootstrap.visit import EVERYTHING, Limits, Rules, TreeError, visit
from tests.captures import quick_room
from tests.machine import needs
from tests.trees import make_deep

if TYPE_CHECKING:
    from collections.abc import Iterable


def entries(top: Path, rules: Rules = EVERYTHING) -> list[Entry]:
    """Walk a directory."""
    with open_directory(top) as root:
        return list(walk(root, rules))


def tree_sha256(found: Iterable[Entry]) -> str:
    """Return the digest of some entries."""
    return write_manifest(found, io.BytesIO()).tree_sha256


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Make a tree with one path of every kind that needs no privilege."""
    made = tmp_path / "top"
    (made / "a").mkdir(parents=True)
    (made / "a/b").write_bytes(b"b\n")
    (made / "a.txt").write_bytes(b"")
    (made / "run").write_bytes(b"#!/bin/sh\n")
    (made / "run").chmod(0o4750)
    (made / "link").symlink_to("a/b")
    (made / "empty").mkdir()
    os.mkfifo(made / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(made / "socket"))
    (made / ".git").mkdir()
    (made / ".git/config").write_text("[core]\n")
    return made


def test_every_path_is_told_in_order(top: Path) -> None:
    """Parents first, siblings by their bytes; special files by kind; the repository not."""
    told = [(entry.path, f"{entry.judged_mode:06o}", entry.size) for entry in entries(top)]
    assert told == [
        (b"a", "040000", 0),
        (b"a/b", "100644", 2),
        (b"a.txt", "100644", 0),
        (b"empty", "040000", 0),
        (b"link", "120000", 3),
        (b"pipe", "010000", 0),
        (b"run", "104755", 10),
        (b"socket", "140000", 0),
    ]


def test_the_digest_is_what_other_programs_make_of_it(tmp_path: Path) -> None:
    """`find`, `sha256sum` and `sort` give the same digest for a tree of plain names."""
    top = tmp_path / "top"
    (top / "d/e").mkdir(parents=True)
    for name, data in (("d/one", b"1\n"), ("d/e/two", b"2" * 100_000), ("d.x", b"")):
        (top / name).write_bytes(data)
    (top / "d/link").symlink_to("e/two")
    script = r"""
        cd "$1" && {
            find . -type f -printf '%m %s ' -exec sha256sum {} ';' |
                sed 's/^644 /100644 /; s|  \./| |'
            find . -type l -printf '120000 %s %l %p\n' | sed 's| \./| |'
        } | tr / '\001' | LC_ALL=C sort -k4 | tr '\001' / | sha256sum
    """
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o644)
    done = subprocess.run(["sh", "-c", script, "sh", top], capture_output=True, check=True)
    assert tree_sha256(entries(top)) == done.stdout.split()[0].decode()


def test_what_is_not_judged_does_not_move_the_digest(top: Path) -> None:
    """Times, group bits, owners and empty directories differ between two clones of one tree."""
    before = entries(top)
    (top / "a/b").chmod(0o664)
    (top / "another").mkdir()
    os.utime(top / "a.txt", (0, 0))
    after = entries(top)
    assert tree_sha256(before) == tree_sha256(after)
    assert [one.path for one in compare(before, after)] == [b"a/b", b"another"]
    assert not any(one.judged for one in compare(before, after))


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (b"a/b", lambda top: (top / "a/b").write_bytes(b"B\n")),
        (b"a.txt", lambda top: (top / "a.txt").chmod(0o755)),
        (b"run", lambda top: (top / "run").chmod(0o755)),
        (b"link", lambda top: ((top / "link").unlink(), (top / "link").symlink_to("a/c"))),
        (b"pipe", lambda top: (top / "pipe").unlink()),
        (b"new", lambda top: (top / "new").touch()),
    ],
    ids=["byte", "execute", "set-id", "target", "removed", "added"],
)
def test_what_is_judged_moves_the_digest(top: Path, path: bytes, change: object) -> None:
    """Each kind of change is one difference, and changes the digest."""
    before = entries(top)
    assert callable(change)
    change(top)
    after = entries(top)
    assert [one.path for one in compare(before, after) if one.judged] == [path]
    assert tree_sha256(before) != tree_sha256(after)


def test_a_manifest_is_read_as_it_was_written(top: Path) -> None:
    """Every name survives, of whatever bytes; lines stay lines."""
    for name in (b"n\n1", b"sp ace", b"\xff\xfe", b"%41", b"\x1b[2K", b"-rf", b"x" * 255):
        os.close(os.open(os.fsencode(top) + b"/" + name, os.O_CREAT | os.O_WRONLY))
        os.symlink(name, os.fsencode(top) + b"/l" + name[:200])
    found = entries(top)
    stored = io.BytesIO()
    tally = write_manifest(found, stored)
    assert stored.getvalue().count(b"\n") == len(found)
    assert stored.getvalue().isascii()
    stored.seek(0)
    assert list(verified(read_manifest(stored), tally.tree_sha256)) == found


@pytest.mark.parametrize(
    "line",
    [b"\n", b"100644 0 0 1 -\n", b"9 0 0 1 - x\n", b"100644 0 0 x - x\n", b"a b c d e f g\n"],
)
def test_a_bad_line_is_tampering(line: bytes) -> None:
    """A manifest of ours that is not one is never read as an empty tree."""
    with pytest.raises(TamperedStateError):
        list(read_manifest(io.BytesIO(line)))


def test_a_manifest_that_was_cut_is_tampering(top: Path) -> None:
    """Each line that is left out, repeated or swapped moves the digest."""
    found = [entry for entry in entries(top) if not entry.is_directory]
    digest = tree_sha256(found)
    for number in range(len(found)):
        for other in (
            found[:number] + found[number + 1 :],
            [*found[: number + 1], *found[number:]],
        ):
            with pytest.raises(TamperedStateError):
                list(verified(other, digest))


def test_two_trees_are_compared_as_sets_of_paths() -> None:
    """The stream finds what dictionaries find, in the order of the visit."""
    chance = random.Random(7)  # noqa: S311 - a fixed sequence of trees
    for _ in range(300):
        old, new = ({name: chance.randrange(2) for name in _names(chance)} for _ in range(2))
        found = [one.path for one in compare(_as_entries(old), _as_entries(new))]
        expected = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        assert found == sorted(expected, key=lambda name: name.split(b"/"))


def _names(chance: random.Random) -> set[bytes]:
    letters = [b"a", b"a.", b"a-", b"b", b"a\xff", b"\x01"]
    return {
        b"/".join(chance.choices(letters, k=chance.randrange(1, 4)))
        for _ in range(chance.randrange(12))
    }


def _as_entries(tree: dict[bytes, int]) -> list[Entry]:
    paths = sorted(tree, key=lambda name: name.split(b"/"))
    return [Entry(path, stat.S_IFREG, 0, 0, tree[path], b"-") for path in paths]


def test_excluded_directories_are_not_entered(top: Path) -> None:
    """A pattern that matches a directory leaves out all that is in it, whatever that is."""
    make_deep(top / "cache", 300)
    rules = Rules(exclude=Globs(["cache", "**/pipe", "s*"]))
    assert [entry.path for entry in entries(top, rules)] == [
        b"a",
        b"a/b",
        b"a.txt",
        b"empty",
        b"link",
        b"run",
    ]
    with open_directory(top) as root:
        nodes = {node.path: node.excluded for node in visit(root, rules)}
        assert not any(nodes.values())


@pytest.mark.parametrize(
    ("limits", "reason", "path"),
    [
        (Limits(files=7), "files", b"socket"),
        (Limits(files=2), "files", b""),
        (Limits(size=11), "bytes", b"run"),
        (Limits(depth=0), "depth", b"a"),
    ],
)
def test_a_limit_names_the_first_path_over_it(
    top: Path, limits: Limits, reason: str, path: bytes
) -> None:
    """Files, bytes and depth are bounded before anything is read."""
    with pytest.raises(TreeError) as caught:
        entries(top, Rules(limits=limits))
    assert caught.value.reason == reason
    assert caught.value.path in (path, b"")


def test_a_sparse_file_is_counted_before_it_is_read(tmp_path: Path) -> None:
    """A file of a terabyte ends at once, since its size is enough to refuse it."""
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TreeError, match="huge"):
        entries(tmp_path)


def test_depth_costs_one_descriptor_a_level_and_ends(tmp_path: Path) -> None:
    """A tree of any depth ends at the limit, and no descriptor is left open."""
    make_deep(tmp_path / "deep", 500)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(TreeError, match="at most 128 levels"):
        entries(tmp_path)
    assert len(os.listdir("/dev/fd")) == before


def test_a_visit_that_is_left_closes_what_it_opened(top: Path) -> None:
    """A consumer that stops early leaves no descriptor."""
    before = len(os.listdir("/dev/fd"))
    with open_directory(top) as root:
        walking = walk(root, EVERYTHING)
        assert next(walking).path == b"a"
        assert next(walking).path == b"a/b"
        walking.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/dev/fd")) == before


def test_a_file_that_is_written_while_it_is_read_is_an_error(top: Path) -> None:
    """Size, times and identity are compared before and after."""
    with open_directory(top) as root:
        for node in visit(root, EVERYTHING):
            if node.path == b"a/b":
                (top / "a/b").write_bytes(b"other\n")
                with pytest.raises(TreeError, match="change while reading"):
                    describe(node)


def test_a_file_that_becomes_a_fifo_does_not_hang(top: Path) -> None:
    """What is opened after `lstat` is opened without waiting, and compared with it."""
    with open_directory(top) as root:
        for node in visit(root, EVERYTHING):
            if node.path == b"a/b":
                (top / "a/b").unlink()
                os.mkfifo(top / "a/b")
                with pytest.raises(TreeError):
                    describe(node)


@pytest.mark.parametrize("target", ["link", "directory"])
def test_a_directory_that_is_swapped_is_not_entered(top: Path, tmp_path: Path, target: str) -> None:
    """Neither a link nor another directory in its place is read for it."""
    with open_directory(top) as root:
        visiting = visit(root, EVERYTHING)
        assert next(visiting).path == b"a"
        (top / "a").rename(tmp_path / "moved")
        if target == "link":
            (top / "a").symlink_to(tmp_path / "moved")
        else:
            (top / "a").mkdir()
        with pytest.raises(TreeError):
            next(visiting)


@needs("root")
def test_a_device_is_recorded_and_not_opened(tmp_path: Path) -> None:
    """A device that would answer an open with an error is told like any other path."""
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(240, 99))
    assert [f"{entry.judged_mode:06o}" for entry in entries(tmp_path)] == ["020000"]


@needs("root", "mount")
def test_mounts_are_found_by_the_table(tmp_path: Path) -> None:
    """Bind mounts of one filesystem, on a directory and on a file, with a blank in the name."""
    script = (
        "mkdir 'a dir' && touch file && mount --bind /etc 'a dir' && mount --bind /etc/passwd file"
        ' && exec "$@"'
    )
    probe = (
        "from pathlib import Path; from bootstrap.files import open_directory\n"
        "from bootstrap.visit import EVERYTHING, visit\n"
        "with open_directory(Path.cwd()) as root:\n"
        "    print([(node.path, node.mount) for node in visit(root, EVERYTHING)])\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", probe],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[(b'a dir', True), (b'file', True)]\n"


def test_memory_does_not_grow_with_the_tree(tmp_path: Path) -> None:
    """Only the names of one directory are held, whatever the number of all paths."""
    with quick_room(tmp_path) as room:
        for number in range(3000):
            if number % 30 == 0:
                (room / f"d{number}").mkdir()
            (room / f"d{number - number % 30}/f{number}").touch()
        tracemalloc.start()
        with open_directory(room) as root, open(os.devnull, "wb") as sink:
            tally = write_manifest(walk(root, EVERYTHING), sink)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert tally.paths == 3000
    assert peak < 500_000


def test_progress_is_told(tmp_path: Path) -> None:
    """A long visit says now and then how far it is."""
    with quick_room(tmp_path) as room:
        for number in range(4100):
            (room / f"f{number}").touch()
        told: list[int] = []
        entries(room, Rules(progress=told.append))
    assert told == [4096]


def test_a_file_s_digest_is_that_of_its_bytes(tmp_path: Path) -> None:
    """Below, at and above the size of one read."""
    for size in (0, 1, 65535, 65536, 65537, 200_000):
        (tmp_path / "file").write_bytes(bytes(size))
        expected = hashlib.sha256(bytes(size)).hexdigest().encode()
        assert [entry.content for entry in entries(tmp_path)] == [expected]
