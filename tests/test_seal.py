"""Sealing: what is hashed is what was written, whoever rewrites the source meanwhile."""

from __future__ import annotations

import os
import threading
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import StorageError
from bootstrap.files import Directory, open_directory
from bootstrap.seal import Digest, digest_fd, seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Directory]:
    """Open a directory to seal into."""
    (tmp_path / "sealed").mkdir()
    with open_directory(tmp_path / "sealed") as directory:
        yield directory


def sealed(source: Path, target: Directory, name: str = "copy") -> Digest:
    """Seal a file by descriptor."""
    fd = os.open(source, os.O_RDONLY)
    try:
        os.read(fd, 3)  # where the descriptor stands does not matter
        assert digest_fd(fd) == seal(fd, target, name)
        return digest_fd(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 1_000_003])
def test_a_copy_is_the_source_and_read_only(tmp_path: Path, target: Directory, size: int) -> None:
    """Digest, size, bytes and mode 0444, whatever the umask."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    digest = sealed(source, target)
    copy = target.path / "copy"
    assert digest == Digest(sha256(copy.read_bytes()).hexdigest(), size)
    assert copy.read_bytes() == source.read_bytes()
    assert copy.stat().st_mode & 0o7777 == 0o444


def test_bytes_are_never_translated(tmp_path: Path, target: Directory) -> None:
    """CR, CRLF, NUL, a BOM, Latin-1, no final newline: bytes end to end."""
    source = tmp_path / "source"
    source.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\0\xe9")
    sealed(source, target)
    assert (target.path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_is_there_is_never_overwritten(tmp_path: Path, target: Directory, kind: str) -> None:
    """The copy is created exclusively: a link planted at its name leads nowhere."""
    source = tmp_path / "source"
    source.write_text("new")
    victim = tmp_path / "victim"
    victim.write_text("old")
    copy = target.path / "copy"
    if kind == "link":
        copy.symlink_to(victim)
    elif kind == "directory":
        copy.mkdir()
    else:
        copy.write_text("old")
    with pytest.raises(StorageError), source.open("rb") as file:
        seal(file.fileno(), target, "copy")
    assert victim.read_text() == "old"


def test_digest_and_copy_agree_while_the_source_is_rewritten(
    tmp_path: Path, target: Directory
) -> None:
    """A writer that never stops can decide what is sealed, not make two truths of it."""
    source = tmp_path / "source"
    source.write_bytes(b"a" * 500_000)
    stop = threading.Event()

    def rewrite() -> None:
        letters = [b"a", b"b"]
        while not stop.is_set():
            letters.reverse()
            with source.open("r+b") as file:
                file.write(letters[0] * 500_000)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for number in range(20):
            with source.open("rb") as file:
                digest = seal(file.fileno(), target, str(number))
            copy = (target.path / str(number)).read_bytes()
            assert digest == Digest(sha256(copy).hexdigest(), len(copy))
    finally:
        stop.set()
        writer.join()


def test_a_source_that_cannot_be_read_is_its_own_error(tmp_path: Path, target: Directory) -> None:
    """OSError for the source, StorageError for the copy: the caller blames the right one."""
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(IsADirectoryError):
            seal(fd, target, "copy")
    finally:
        os.close(fd)
