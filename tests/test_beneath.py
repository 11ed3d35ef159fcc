from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from bootstrap.beneath import DIRECTORY_FLAGS, _open_by_openat2, open_at
from bootstrap.files import READ_FLAGS, Directory, open_directory
from tests.machine import needs
from tests.openers import Caller, both_openers, without_openat2
from tests.wiper import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Directory]:
    """Open a directory with a file, a nested directory, and links to them and out."""
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "b" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    links = {"to-a": "a", "to-file": "a/b/file", "out": "..", "dangling": "no", "loop": "loop"}
    for name, target in links.items():
        (tmp_path / "top" / name).symlink_to(target)
    with open_directory(tmp_path / "top") as directory:
        yield directory


def _assert_refused(
    call: Caller, top: Directory, path: bytes | str, code: int, flags: int = READ_FLAGS
) -> None:
    with pytest.raises(OSError, match=os.strerror(code)):
        call(open_at, top.fd, path, flags)


@needs("linux")
def test_the_second_way_has_no_openat2(top: Directory) -> None:
    """Where the tests say `walk`, the kernel truly answers that it has no such call."""
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        without_openat2(_open_by_openat2, top.fd, b".", DIRECTORY_FLAGS)


@both_openers
@pytest.mark.parametrize(
    "path", ["a/b/file", "a//b/./file", "./a/b/file", b"a/b/file", "a/b/file/"]
)
def test_a_path_is_opened_beneath(call: Caller, top: Directory, path: bytes | str) -> None:
    """Every spelling of a path names one file, and the descriptor is not inherited."""
    fd = call(open_at, top.fd, path, READ_FLAGS)
    try:
        assert os.read(fd, 10) == b"inside"
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


@both_openers
@pytest.mark.parametrize("path", ["", ".", "./"])
def test_no_path_is_the_directory_itself(call: Caller, top: Directory, path: str) -> None:
    """The parent of a plain name is opened as any other parent."""
    fd = call(open_at, top.fd, path, DIRECTORY_FLAGS)
    try:
        assert os.path.sameopenfile(fd, top.fd)
    finally:
        os.close(fd)


@both_openers
@pytest.mark.parametrize("path", ["to-file", "dangling", "loop", "to-a/b/file", "out/secret"])
def test_a_link_is_not_followed(call: Caller, top: Directory, path: str) -> None:
    """Neither on the way nor at the end, wherever it points."""
    _assert_refused(call, top, path, errno.ELOOP)


@both_openers
@pytest.mark.parametrize("path", ["to-a", "to-a/", "out", "out/", "dangling"])
def test_a_link_is_no_directory(call: Caller, top: Directory, path: str) -> None:
    """A trailing slash does not make the target of a link."""
    _assert_refused(call, top, path, errno.ENOTDIR, DIRECTORY_FLAGS)


@both_openers
@pytest.mark.parametrize("path", ["..", "a/..", "a/../../secret", "/", "/etc/passwd", "a/b/.."])
def test_a_path_that_could_leave_is_refused(call: Caller, top: Directory, path: str) -> None:
    """An absolute path, and every `..`, also one that would stay inside."""
    _assert_refused(call, top, path, errno.EXDEV)


@both_openers
def test_a_nul_does_not_cut_a_path(call: Caller, top: Directory) -> None:
    """A C string would end at the NUL, and open another file."""
    _assert_refused(call, top, b"a/b/file\0.json", errno.EINVAL)


@both_openers
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("no", errno.ENOENT),
        ("no/file", errno.ENOENT),
        ("a/b/file/x", errno.ENOTDIR),
        ("n" * 256, errno.ENAMETOOLONG),
    ],
)
def test_other_errors_are_the_systems(call: Caller, top: Directory, path: str, code: int) -> None:
    """Both ways tell the same error, so that a caller can decide by it."""
    _assert_refused(call, top, path, code)


@both_openers
def test_a_fifo_does_not_hang_the_open(call: Caller, top: Directory) -> None:
    """A FIFO without a writer is opened at once, for the caller to refuse."""
    os.mkfifo(top.path / "fifo")
    os.close(call(open_at, top.fd, "fifo", READ_FLAGS))


@needs("linux")
@both_openers
@pytest.mark.parametrize("path", ["a/b/file", "a/b/no", "a/b/file/x", "a/../b", "to-a/b/file"])
def test_no_descriptor_is_left_open(call: Caller, top: Directory, path: str) -> None:
    """A path that is refused half way closes what it opened on the way."""
    before = os.listdir("/proc/self/fd")
    with suppress(OSError):
        os.close(call(open_at, top.fd, path, READ_FLAGS))
    assert os.listdir("/proc/self/fd") == before


PROBE = """
import os, sys
from bootstrap.beneath import open_at
from bootstrap.files import READ_FLAGS
from tests.openers import deny_openat2
fd = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[3] == "walk":
    deny_openat2()
if sys.argv[4] == "plain" and os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    print(os.read(open_at(fd, sys.argv[2], READ_FLAGS), 10).decode())
except OSError as error:
    print(os.strerror(error.errno))
"""


def _open_in_child(top: Path, path: str, *words: str, before: tuple[str, ...] = ()) -> str:
    command = [*before, sys.executable, "-c", PROBE, str(top), path, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_a_directory_that_may_only_be_searched_is_passed(top: Directory, way: str) -> None:
    """A parent of mode 0711 lets a plain user through to a name it knows."""
    for directory, mode in (("a", 0o311), ("a/b", 0o311)):
        if os.geteuid() == 0:
            os.chown(top.path / directory, 65534, 65534)
        (top.path / directory).chmod(mode)
    (top.path / "a" / "b" / "file").chmod(0o644)
    assert _open_in_child(top.path, "a/b/file", way, "plain") == "inside"


@needs("root", "mount")
@pytest.mark.parametrize("way", ["openat2", "walk"])
@pytest.mark.parametrize(
    ("mount", "path"),
    [
        ("mount --bind a/b a/b", "a/b/file"),
        ("mount --bind a/b/file a/b/file", "a/b/file"),
        ("mount -t tmpfs tmpfs a/b; echo > a/b/file", "a/b/file"),
        ("mount -t proc proc a/b", "a/b/self/status"),
    ],
)
def test_a_mount_is_not_crossed(top: Directory, way: str, mount: str, path: str) -> None:
    """A bind mount of the same filesystem has the same device, and is told all the same."""
    before = ("unshare", "--mount", "sh", "-ec", f'cd "{top.path}"; {mount}; cd "$0"; exec "$@"')
    answer = _open_in_child(top.path, path, way, "root", before=(*before, str(ROOT)))
    assert answer == os.strerror(errno.EXDEV)


LAYERS = """
mkdir "$1/lower" && echo inside > "$1/lower/file"
mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir upper work
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=upper,workdir=work" "$1/top"
cd "$0"
shift
exec "$@"
"""


@needs("root", "mount", "overlay")
@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_a_file_of_an_image_layer_is_on_its_directorys_mount(tmp_path: Path, way: str) -> None:
    """An overlay filesystem gives a file another device number than its directory."""
    (tmp_path / "top").mkdir()
    before = ("unshare", "--mount", "sh", "-ec", LAYERS, str(ROOT), str(tmp_path))
    assert _open_in_child(tmp_path / "top", "file", way, "root", before=before) == "inside"


@needs("root", "mount")
def test_without_proc_a_walk_is_refused_and_nothing_is_missing(top: Directory) -> None:
    """Where mounts cannot be told apart the error is not the one of a missing file."""
    before = ("unshare", "--mount", "sh", "-ec", 'mount -t tmpfs tmpfs /proc; cd "$0"; exec "$@"')
    answer = _open_in_child(top.path, "a/b/file", "walk", "root", before=(*before, str(ROOT)))
    assert answer == os.strerror(errno.ENOTSUP)
