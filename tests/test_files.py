from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import StorageError, UnsafeFileError
from bootstrap.files import (
    Directory,
    make_directory,
    open_directory,
    open_directory_beneath,
    open_regular,
    read_regular,
    require_regular,
    write_all,
    write_new,
    write_replacing,
)
from tests.machine import needs
from tests.openers import Caller, both_openers
from tests.trees import names_in
from tests.wiper import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Directory]:
    """Open an empty directory."""
    with open_directory(tmp_path) as directory:
        yield directory


def _reason(call: Caller, place: Directory, path: str, limit: int = 10) -> str:
    with pytest.raises(UnsafeFileError) as refusal:
        call(read_regular, place, path, limit)
    assert refusal.value.status == 77
    assert str(place.path / path) in str(refusal.value)
    return refusal.value.reason


@both_openers
def test_a_regular_file_is_read(call: Caller, place: Directory) -> None:
    """All bytes, up to and including the limit."""
    (place.path / "file").write_bytes(b"0123456789")
    assert call(read_regular, place, "file", 10) == b"0123456789"
    assert call(read_regular, place, b"./file", 11) == b"0123456789"


@both_openers
def test_a_file_over_the_limit_is_refused(call: Caller, place: Directory) -> None:
    """One byte more than the limit is too large."""
    (place.path / "file").write_bytes(b"0123456789x")
    assert _reason(call, place, "file") == "too_large"


@both_openers
def test_an_endless_sparse_file_is_refused_in_constant_memory(
    call: Caller, place: Directory
) -> None:
    """A terabyte of nothing is not read."""
    with (place.path / "file").open("wb") as file:
        file.truncate(1 << 40)
    assert _reason(call, place, "file", 1 << 20) == "too_large"


@both_openers
def test_a_missing_file_is_told(call: Caller, place: Directory) -> None:
    """The file, its parent, and a file for a parent."""
    (place.path / "file").touch()
    assert {_reason(call, place, path) for path in ("no", "no/file", "file/x")} == {"missing"}


@both_openers
@pytest.mark.parametrize("kind", ["directory", "link", "link above", "fifo", "socket"])
def test_what_is_no_regular_file_is_refused(call: Caller, place: Directory, kind: str) -> None:
    """In bounded time, and without reading what a link points to."""
    (place.path / "real").mkdir()
    (place.path / "real" / "file").touch()
    (place.path / "link above").symlink_to("real")
    (place.path / "link").symlink_to("real/file")
    (place.path / "directory").mkdir()
    os.mkfifo(place.path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{place.fd}/socket")
    path = f"{kind}/file" if kind == "link above" else kind
    assert _reason(call, place, path) == "not_regular"


@needs("root")
@both_openers
def test_a_device_is_refused(call: Caller, place: Directory) -> None:
    """`/dev/zero` under another name is not read."""
    os.mknod(place.path / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert _reason(call, place, "zero") == "not_regular"


@both_openers
def test_a_second_link_is_refused_unless_allowed(call: Caller, place: Directory) -> None:
    """A file with two names may be changed under the other one."""
    (place.path / "file").write_bytes(b"bytes")
    (place.path / "other").hardlink_to(place.path / "file")
    assert _reason(call, place, "file") == "links"
    assert call(read_regular, place, "file", 10, single_link=False) == b"bytes"


@needs("plain-user")
@both_openers
def test_a_file_that_may_not_be_read_is_refused(call: Caller, place: Directory) -> None:
    """Mode 0000 is an answer, not a crash."""
    (place.path / "file").touch(mode=0)
    assert _reason(call, place, "file") == "unreadable"


@both_openers
@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../x"])
def test_a_path_that_could_leave_is_unreadable(call: Caller, place: Directory, path: str) -> None:
    """Whatever is there is not the file that was meant."""
    with pytest.raises(UnsafeFileError) as refusal:
        call(read_regular, place, path, 10)
    assert refusal.value.reason == "unreadable"


@needs("linux")
@both_openers
def test_a_refused_file_is_closed(call: Caller, place: Directory) -> None:
    """Refusing a thousand files does not use up a thousand descriptors."""
    os.mkfifo(place.path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert _reason(call, place, "fifo") == "not_regular"
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_open_file_is_judged_by_its_descriptor(place: Directory) -> None:
    """The status that comes back is of the open file, however its name is used meanwhile."""
    (place.path / "file").write_bytes(b"bytes")
    fd = open_regular(place, "file")
    try:
        (place.path / "file").rename(place.path / "moved")
        assert require_regular(fd, place.path / "file").st_size == 5
    finally:
        os.close(fd)


@both_openers
def test_a_directory_is_opened_beneath(call: Caller, place: Directory) -> None:
    """Its path is for messages; the descriptor is what counts, and is closed at the end."""
    (place.path / "a" / "b").mkdir(parents=True)
    with call(open_directory_beneath, place, b"a/b") as below:
        assert below.path == place.path / "a" / "b"
        assert os.path.samestat(os.fstat(below.fd), os.stat(below.path))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(below.fd)


def test_a_directory_is_not_opened_through_a_last_link(place: Directory) -> None:
    """The last component may not be a link."""
    (place.path / "link").symlink_to(".")
    with pytest.raises(NotADirectoryError):
        open_directory(place.path / "link")


@pytest.mark.parametrize("mode", [0o700, 0o711, 0o1777])
def test_a_directory_is_made_with_its_exact_mode(place: Directory, mode: int) -> None:
    """The umask does not decide who may enter."""
    before = os.umask(0o077)
    try:
        with make_directory(place, "made", mode) as made:
            assert stat.S_IMODE(os.fstat(made.fd).st_mode) == mode
    finally:
        os.umask(before)


MAKERS: Final[dict[str, Callable[[Path], None]]] = {
    "directory": lambda path: path.mkdir(),
    "file": lambda path: path.touch(),
    "link": lambda path: path.symlink_to("."),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_a_directory_is_made_exclusively(place: Directory, make: Callable[[Path], None]) -> None:
    """What is there already, of any kind, is never used."""
    make(place.path / "made")
    with pytest.raises(FileExistsError):
        make_directory(place, "made")


def test_a_file_is_written_new(place: Directory) -> None:
    """Exactly the bytes, with exactly the mode."""
    write_new(place, "file", b"bytes", 0o444)
    assert (place.path / "file").read_bytes() == b"bytes"
    assert stat.S_IMODE((place.path / "file").stat().st_mode) == 0o444


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_new_file_never_replaces(place: Directory, kind: str) -> None:
    """What is there is left alone, and a link is not written through."""
    (place.path / "kept").write_bytes(b"kept")
    if kind == "file":
        (place.path / "file").write_bytes(b"kept")
    else:
        (place.path / "file").symlink_to("kept")
    with pytest.raises(StorageError, match="File exists"):
        write_new(place, "file", b"bytes")
    assert (place.path / "file").read_bytes() == b"kept"
    assert (place.path / "kept").read_bytes() == b"kept"


def test_a_file_is_replaced_whole(place: Directory) -> None:
    """The old bytes, or the new; and a link is replaced, not followed."""
    (place.path / "kept").write_bytes(b"kept")
    (place.path / "link").symlink_to("kept")
    (place.path / "file").write_bytes(b"old")
    for name in ("file", "link", "new"):
        write_replacing(place, name, b"bytes")
        assert (place.path / name).read_bytes() == b"bytes"
        assert not (place.path / name).is_symlink()
    assert (place.path / "kept").read_bytes() == b"kept"
    assert names_in(place.path) == {b"kept", b"link", b"file", b"new"}


@needs("linux")
def test_all_is_written_through_short_writes(place: Directory) -> None:
    """A pipe that never waits takes what it has room for; the rest follows."""
    data = bytes(range(256)) * 4096
    with (
        (place.path / "copy").open("wb") as copy,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=copy) as cat,
    ):
        assert cat.stdin
        write_all(cat.stdin.fileno(), data)
        cat.stdin.close()
    assert (place.path / "copy").read_bytes() == data


WRITE = """
import sys
from bootstrap.errors import StorageError
from bootstrap.files import open_directory, write_new, write_replacing
from pathlib import Path
with open_directory(Path(sys.argv[1])) as place:
    try:
        {"new": write_new, "replacing": write_replacing}[sys.argv[2]](place, "file", b"bytes")
    except StorageError as error:
        print(error)
"""


@needs("strace")
@pytest.mark.parametrize(
    ("how", "call"),
    [
        *(("new", call) for call in ("write", "fchmod", "fsync")),
        *(("replacing", call) for call in ("write", "fchmod", "fsync", "rename")),
    ],
)
def test_a_write_that_fails_leaves_the_place_as_it_was(
    place: Directory, how: str, call: str
) -> None:
    """A full or broken disk, at each step, leaves no part of a file and no temporary one."""
    before = {b"file"} if how == "replacing" else set()
    if before:
        (place.path / "file").write_bytes(b"old")
    calls = "?rename,?renameat,?renameat2" if call == "rename" else call
    answer = _write_with_failure(place, how, f"{calls}:error=ENOSPC:when=1")
    assert "No space left on device; free space" in answer
    assert names_in(place.path) == before
    if before:
        assert (place.path / "file").read_bytes() == b"old"


def _write_with_failure(place: Directory, how: str, inject: str) -> str:
    strace = ["strace", "-f", "-o", os.devnull, f"--inject={inject}"]
    command = [*strace, sys.executable, "-B", "-c", WRITE, str(place.path), how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout
