"""The scoring tree: a private copy with the sealed diff applied, and nothing else happens."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attempt_runner.git import find_git
from attempt_runner.tree import PatchRefusedError, scoring_tree
from bootstrap.errors import ConfigurationError
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs("git")

CHANGE = b"""\
diff --git a/code.py b/code.py
--- a/code.py
+++ b/code.py
@@ -1 +1 @@
-old
+new
"""


def create(path: str, *lines: str, mode: str = "100644") -> bytes:
    """Return a patch that creates a file (or link) of some lines."""
    body = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{body}"
    ).encode()


def link(path: str, target: str) -> bytes:
    """Return a patch that creates a symbolic link."""
    return create(path, target, mode="120000") + b"\\ No newline at end of file\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Make a trusted base with one file."""
    made = tmp_path / "base"
    made.mkdir()
    (made / "code.py").write_text("old\n")
    return made


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """Make the directory that trees are made in, and see that nothing else is left there."""
    made = tmp_path / "scratch"
    made.mkdir()
    yield made
    assert {path.name for path in made.iterdir()} <= {"tree"}


def apply(base: Path, scratch: Path, patch: bytes, *, writable: bool = False) -> Path:
    """Make a scoring tree from a base and the bytes of a patch."""
    sealed = scratch.parent / "patch.diff"
    sealed.write_bytes(patch)
    return scoring_tree(base, sealed, scratch / "tree", writable=writable).path


def test_the_diff_is_applied_to_a_copy(base: Path, scratch: Path) -> None:
    """The tree has the change and the base keeps its bytes."""
    tree = apply(base, scratch, CHANGE)
    assert (tree / "code.py").read_bytes() == b"new\n"
    assert (base / "code.py").read_bytes() == b"old\n"


def test_modes_are_few_and_read_only(base: Path, scratch: Path) -> None:
    """Set-id, group and write bits of base and patch end at the copy; the owner's x stays."""
    (base / "tool").write_text("#!/bin/sh\n")
    (base / "tool").chmod(0o6770)
    (base / "secret").write_text("kept\n")
    (base / "secret").chmod(0o600)
    tree = apply(base, scratch, create("deep/new.sh", "x", mode="100755"))
    modes = {str(p.relative_to(tree)): stat.S_IMODE(p.stat().st_mode) for p in tree.rglob("*")}
    assert modes == {
        "code.py": 0o444,
        "tool": 0o555,
        "secret": 0o444,
        "deep": 0o555,
        "deep/new.sh": 0o555,
    }
    assert stat.S_IMODE(tree.stat().st_mode) == 0o555


def test_a_writable_tree_is_writable(base: Path, scratch: Path) -> None:
    """With `writable` the owner may write, and still nobody else."""
    tree = apply(base, scratch, CHANGE, writable=True)
    assert stat.S_IMODE(tree.stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "code.py").stat().st_mode) == 0o644


def test_links_are_copied_and_never_followed(base: Path, scratch: Path) -> None:
    """Dangling, absolute and directory links stay links with their targets."""
    (base / "away").symlink_to("/etc")
    (base / "nowhere").symlink_to("gone")
    tree = apply(base, scratch, CHANGE)
    assert (tree / "away").readlink() == Path("/etc")
    assert (tree / "nowhere").readlink() == Path("gone")


def test_no_hard_link_is_shared(base: Path, scratch: Path) -> None:
    """Two names of one file become two files, neither of them the base's."""
    (base / "twin.py").hardlink_to(base / "code.py")
    tree = apply(base, scratch, create("n", "x"), writable=True)
    assert {(tree / name).stat().st_nlink for name in ("code.py", "twin.py")} == {1}
    (tree / "twin.py").write_text("written\n")
    assert (base / "twin.py").read_text() == "old\n"


def test_the_top_level_repository_is_left_out(base: Path, scratch: Path) -> None:
    """The base's own `.git` is not in the tree; a nested one is content like any other."""
    for repository in (base / ".git", base / "vendored/.git"):
        repository.mkdir(parents=True)
        (repository / "config").write_text("[core]\n")
    tree = apply(base, scratch, CHANGE)
    assert not (tree / ".git").exists()
    assert (tree / "vendored/.git/config").exists()


def test_a_special_file_in_the_base_is_refused(base: Path, scratch: Path) -> None:
    """A FIFO in the base is a configuration error that names it, in bounded time."""
    os.mkfifo(base / "pipe")
    with pytest.raises(ConfigurationError, match=r"file type p at pipe"):
        apply(base, scratch, CHANGE)


def test_holes_stay_holes(base: Path, scratch: Path) -> None:
    """A sparse gigabyte in the base is copied with its bytes and without its blocks."""
    with (base / "sparse").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"island")
        file.truncate(1 << 30)
    tree = apply(base, scratch, CHANGE)
    status = (tree / "sparse").stat()
    assert status.st_size == 1 << 30
    assert status.st_blocks * 512 < 1 << 24
    with (tree / "sparse").open("rb") as file:
        file.seek((1 << 20) - 1)
        assert file.read(8) == b"\0island\0"


def test_every_kind_of_change_applies(base: Path, scratch: Path) -> None:
    """Binary, rename, deletion, mode, link, empty file and odd names from a real git diff."""
    (base / "gone").write_text("bye\n")
    (base / "moved").write_text("same\n" * 20)
    (base / "data").write_bytes(bytes(range(256)))
    (base / "kind").write_text("file\n")
    after = base.parent / "after"
    subprocess.run(["cp", "-a", str(base), str(after)], check=True)
    git(after, "init", "-q")
    git(after, "add", "-A")
    old = git(after, "write-tree").decode().strip()
    (after / "gone").unlink()
    (after / "moved").rename(after / 'b\u00e9 "q"\n')
    (after / "data").write_bytes(bytes(reversed(range(256))))
    (after / "kind").unlink()
    (after / "kind").symlink_to("code.py")
    (after / "code.py").chmod(0o755)
    (after / "empty").touch()
    git(after, "add", "-A")
    diff = git(after, "diff", "--cached", "--binary", "--full-index", "-M", old)
    tree = apply(base, scratch, diff)
    compare = ["diff", "-r", "--no-dereference", "-x", ".git", str(after), str(tree)]
    assert subprocess.run(compare, check=False).returncode == 0
    assert (tree / "code.py").stat().st_mode & stat.S_IXUSR


def git(where: Path, *arguments: str) -> bytes:
    """Run git in a directory and return what it printed."""
    done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(CHANGE.replace(b"-old", b"-other"), id="other-context"),
        pytest.param(b"not a patch\n", id="no-patch"),
        pytest.param(CHANGE[:-5], id="cut"),
        pytest.param(create("code.py", "again"), id="exists"),
        pytest.param(CHANGE.replace(b"code.py", b"\x1b[2Kaccept"), id="escape"),
    ],
)
def test_a_diff_that_does_not_apply_is_refused(base: Path, scratch: Path, patch: bytes) -> None:
    """The refusal is one printable line, whatever the diff holds, and the base is untouched."""
    with pytest.raises(PatchRefusedError) as caught:
        apply(base, scratch, patch)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert (base / "code.py").read_text() == "old\n"


def test_all_of_a_diff_applies_or_nothing(base: Path, scratch: Path) -> None:
    """A good part before a bad part leaves no trace."""
    with pytest.raises(PatchRefusedError):
        apply(base, scratch, create("first", "x") + create("code.py", "again"))
    assert not (scratch / "tree/first").exists()


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(create("../escaped", "x"), id="parent"),
        pytest.param(create("sub/../../escaped", "x"), id="parent-inside"),
        pytest.param(link("door", "..") + create("door/escaped", "x"), id="own-link"),
        pytest.param(create("out/escaped", "x"), id="link-of-the-base"),
        pytest.param(create(".git/config", "[core]"), id="repository"),
        pytest.param(create(".GIT/config", "[core]"), id="repository-case"),
        pytest.param(create("sub/.git/hooks/post-checkout", "x"), id="nested-repository"),
        pytest.param(link(".gitmodules", "/etc/passwd"), id="modules-link"),
    ],
)
def test_a_diff_cannot_leave_the_tree(base: Path, scratch: Path, patch: bytes) -> None:
    """A path with `..`, through a link, or into a repository is refused, and nothing is there."""
    (base / "out").symlink_to("..")
    with pytest.raises(PatchRefusedError):
        apply(base, scratch, patch)
    assert not list(base.parent.rglob("escaped"))
    assert not list(base.parent.rglob(".[gG][iI][tT]/*"))


def test_an_absolute_path_stays_inside(base: Path, scratch: Path, tmp_path: Path) -> None:
    """Git strips the first component of any path, so an absolute one lands in the tree."""
    outside = tmp_path / "outside"
    patch = f"--- /dev/null\n+++ {outside}\n@@ -0,0 +1 @@\n+x\n"
    tree = apply(base, scratch, patch.encode())
    assert not outside.exists()
    assert (tree / Path(*outside.parts[1:])).read_text() == "x\n"


def test_attributes_and_configuration_start_nothing(
    base: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters, hooks and conversions planted in base, patch, HOME and environment are dead."""
    canary = tmp_path / "canary"
    plant = f"touch {canary}"
    config = tmp_path / "home/.gitconfig"
    config.parent.mkdir()
    config.write_text(
        f'[filter "evil"]\n\tsmudge = {plant}\n\tclean = {plant}\n\tprocess = {plant}\n'
        f"[core]\n\tfsmonitor = {plant}\n\thooksPath = {tmp_path}\n\tautocrlf = true\n"
        f'[apply]\n\twhitespace = fix\n[diff "evil"]\n\ttextconv = {plant}\n'
    )
    for name, value in {
        "HOME": str(config.parent),
        "XDG_CONFIG_HOME": str(config.parent),
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CONFIG_SYSTEM": str(config),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": plant,
        "GIT_EXTERNAL_DIFF": plant,
        "GIT_DIR": str(base / ".git"),
    }.items():
        monkeypatch.setenv(name, value)
    attributes = "* filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16"
    (base / ".gitattributes").write_text(f"[attr]binary filter=evil\n{attributes}\n")
    (base / ".git").mkdir()
    (base / ".git/config").write_bytes(config.read_bytes())
    patch = CHANGE.replace(b"+new", b"+new $Id$ \t") + create("sub/.gitattributes", attributes)
    tree = apply(base, scratch, patch + create("sub/f", "$Id$  "))
    assert (tree / "code.py").read_bytes() == b"new $Id$ \t\n"
    assert (tree / "sub/f").read_bytes() == b"$Id$  \n"
    assert not canary.exists()


def test_carriage_returns_are_bytes(base: Path, scratch: Path) -> None:
    """CRLF, CR alone, a BOM, Latin-1 and no final newline pass unchanged."""
    (base / "mixed").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\xe9")
    patch = (
        b"diff --git a/mixed b/mixed\n--- a/mixed\n+++ b/mixed\n@@ -1,2 +1,2 @@\n"
        b"-\xef\xbb\xbfa\r\n+\xef\xbb\xbfA\r\n b\rc\xe9\n\\ No newline at end of file\n"
    )
    tree = apply(base, scratch, patch)
    assert (tree / "mixed").read_bytes() == b"\xef\xbb\xbfA\r\nb\rc\xe9"


def test_a_repository_around_the_tree_is_not_asked(base: Path, scratch: Path) -> None:
    """Inside a repository's directory git apply would pass over every path in silence."""
    subprocess.run(["git", "init", "-q", str(scratch.parent)], check=True)
    tree = apply(base, scratch, CHANGE)
    assert (tree / "code.py").read_bytes() == b"new\n"


def test_a_small_diff_cannot_ask_for_much_memory(base: Path, scratch: Path) -> None:
    """A 5 kB binary delta that would unfold to 16 GiB is refused."""
    block = 0xFFFFFF
    with (base / "seed").open("wb") as file:
        file.truncate(block)
    times = 1024
    copy = b"\xf0" + block.to_bytes(3, "little")
    delta = _varint(block) + _varint(block * times) + copy * times
    old = _blob_id(b"\0" * block)
    patch = (
        f"diff --git a/seed b/seed\nindex {old}..{'1' * 40} 100644\nGIT binary patch\n"
        f"delta {len(delta)}\n{_base85(delta)}\n"
    )
    with pytest.raises(PatchRefusedError):
        apply(base, scratch, patch.encode())
    assert (scratch / "tree/seed").stat().st_size == block


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _blob_id(data: bytes) -> str:
    done = subprocess.run(
        ["git", "hash-object", "--stdin"], input=data, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def _base85(data: bytes) -> str:
    """Encode as a binary patch does: up to 52 bytes a line, its length as a letter first."""
    packed = zlib.compress(data)
    lines = []
    for start in range(0, len(packed), 52):
        chunk = packed[start : start + 52]
        length = chr(ord("A") + len(chunk) - 1 if len(chunk) <= 26 else ord("a") + len(chunk) - 27)
        lines.append(length + base64.b85encode(chunk, pad=True).decode() + "\n")
    return "".join(lines)


def test_a_missing_git_is_a_configuration_error(tmp_path: Path) -> None:
    """Without git the job is refused, not the diff."""
    with pytest.raises(ConfigurationError, match="install git"):
        find_git(str(tmp_path))


def test_a_missing_base_is_a_configuration_error(scratch: Path) -> None:
    """A base that is not there names itself."""
    with pytest.raises(ConfigurationError, match="base"):
        apply(scratch.parent / "nowhere", scratch, CHANGE)


def test_the_base_is_told_by_its_digest(base: Path, scratch: Path) -> None:
    """Two bases that differ in one byte have two digests; the diff does not move them."""
    sealed = scratch.parent / "patch.diff"
    sealed.write_bytes(create("n", "x"))
    one = scoring_tree(base, sealed, scratch / "tree").base_sha256
    (base / "code.py").write_text("Old\n")
    other = scoring_tree(base, sealed, scratch.parent / "second").base_sha256
    assert one != other
