"""Private copies: the bytes are the same whichever way the system lets them be copied."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.copies import copy_content, copy_tree
from bootstrap.errors import StorageError
from bootstrap.files import open_directory
from bootstrap.visit import EVERYTHING, TreeError

if TYPE_CHECKING:
    from pathlib import Path

SIZE: Final = 300_000


def fail(code: int) -> object:
    """Return a system call that fails with one error."""

    def call(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return call


def copy_one(top: Path, size: int = SIZE, claimed: int | None = None) -> bytes:
    """Copy a file with two islands of data, and return the sha256 that was told."""
    data = bytearray(size)
    data[:5], data[-5:] = b"first", b"last!"
    (top / "source").write_bytes(data)
    with open(top / "source", "rb") as source, open(top / "target", "w+b") as target:
        told = copy_content(source.fileno(), target.fileno(), b"x", claimed or size)
    assert (top / "target").read_bytes() == data
    assert told == hashlib.sha256(data).hexdigest().encode()
    return told


@pytest.mark.parametrize("size", [10, 65535, 65536, SIZE])
def test_a_copy_has_the_bytes_of_its_source(tmp_path: Path, size: int) -> None:
    """Below and above the size of one read."""
    copy_one(tmp_path, size)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_a_kernel_that_does_not_copy_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Another filesystem, an old kernel and a syscall filter each fall back to read and write."""
    monkeypatch.setattr(os, "copy_file_range", fail(code))
    copy_one(tmp_path)


def test_a_system_without_the_call_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every system has `copy_file_range`."""
    monkeypatch.delattr(os, "copy_file_range")
    copy_one(tmp_path)


def test_another_error_of_the_copy_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk does not end in a second attempt by hand."""
    monkeypatch.setattr(os, "copy_file_range", fail(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        copy_one(tmp_path)


@pytest.mark.parametrize("claimed", [5, SIZE + 1])
def test_a_source_of_another_size_is_an_error(tmp_path: Path, claimed: int) -> None:
    """A file that shrank or grew since it was looked at is told as changed."""
    size = 10 if claimed == 5 else SIZE
    with pytest.raises(TreeError, match="change while reading"):
        copy_one(tmp_path, size, claimed)


def test_a_copy_that_cannot_be_written_names_its_place(tmp_path: Path) -> None:
    """Our own failed write is told apart from a source that cannot be read."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("x")
    (tmp_path / "target").mkdir()
    (tmp_path / "target/file").touch()
    with (
        open_directory(tmp_path / "source") as source,
        open_directory(tmp_path / "target") as target,
        pytest.raises(StorageError, match="File exists"),
    ):
        list(copy_tree(source, target, EVERYTHING))
