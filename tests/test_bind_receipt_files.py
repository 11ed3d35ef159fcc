"""The binder and files that are not what they should be: named, in bounded time and memory."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.bind_receipt import digest_file
from tests.binder import PATIENCE, Job, accepted, make_job, refused, rejected, run
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job that is accepted as it stands."""
    return make_job(tmp_path)


def _absent(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        # A socket's path is at most 108 bytes, and a test's is longer: name it by descriptor.
        directory = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)


def _device(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero


def _dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _link_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".real")).name)


def _link_to_zero(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _hard_link(path: Path) -> None:
    os.link(path, path.with_suffix(".second"))


def _too_large(path: Path) -> None:
    path.write_bytes(path.read_bytes().ljust(1024 * 1024 + 1))


NO_FILE: list[Callable[[Path], None]] = [
    _empty,
    _directory,
    _fifo,
    _socket,
    _dangling_link,
    _link_loop,
    _link_to_zero,
]


@pytest.mark.parametrize("damage", [_absent, *NO_FILE, _link])
def test_diff_that_is_no_file_of_its_own(job: Job, damage: Callable[[Path], None]) -> None:
    """It is named by its file alone, in bounded time; the diff may not even be a link."""
    damage(job.diff)
    assert rejected(job.verify(), "diff_file")
    assert rejected(job.verify(model="model-b"), "diff_file", "model_id")
    assert refused(job.write(), "--diff", "expected a regular file")


@pytest.mark.parametrize("damage", [_absent, *NO_FILE])
def test_prompt_that_is_no_file(job: Job, damage: Callable[[Path], None]) -> None:
    """It is named by its file alone, in bounded time."""
    damage(job.prompt)
    assert rejected(job.verify(), "prompt_file")
    assert refused(job.write(), "--prompt", "expected a regular file")


def test_prompt_may_be_a_link(job: Job) -> None:
    """A mounted ConfigMap is one."""
    _link(job.prompt)
    assert accepted(job.verify())


@pytest.mark.parametrize(
    "damage",
    [_directory, _fifo, _socket, _dangling_link, _link_loop, _link_to_zero, _link, _hard_link],
)
def test_receipt_that_is_no_file_of_its_own(job: Job, damage: Callable[[Path], None]) -> None:
    """A receipt is a regular file with one link; anything else is refused by what it is."""
    damage(job.receipt)
    assert rejected(job.verify(), "receipt_file")


@needs("root")
@pytest.mark.parametrize("name", ["diff", "prompt", "receipt"])
def test_device(job: Job, name: str) -> None:
    """An endless device is refused by its type, without reading it."""
    _device(getattr(job, name))
    assert rejected(job.verify(), f"{name}_file")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/proc/self/environ", "/proc/self/mem"])
def test_paths_that_are_no_job_files(job: Job, path: str) -> None:
    """Files of the kernel have no size to be held to, and are no diff, prompt or receipt."""
    assert rejected(job.verify(diff=path), "diff_file")
    assert rejected(job.verify(prompt=path), "prompt_file")
    done = job.verify(receipt=path)
    assert (done.status, done.err) == (1, "")
    assert done.out in {"reject: receipt_file\n", "reject: receipt_json\n"}


def test_receipt_below_a_file_or_nothing_is_missing(job: Job) -> None:
    """What no path leads to is missing, and a missing receipt stands alone."""
    missing = job.receipt / "receipt.json"
    assert rejected(job.verify(receipt=str(missing), model="model-b"), "missing_receipt")
    missing = job.directory / "none" / "receipt.json"
    assert rejected(job.verify(receipt=str(missing), diff="none"), "missing_receipt")


def test_receipt_at_the_size_limit_is_read_and_one_byte_more_is_not(job: Job) -> None:
    """White space up to 1 MiB is a receipt still."""
    job.receipt.write_bytes(job.receipt.read_bytes().ljust(1024 * 1024))
    assert accepted(job.verify())
    _too_large(job.receipt)
    assert rejected(job.verify(), "receipt_file")


def test_sparse_receipt_is_refused_by_its_size(job: Job) -> None:
    """A terabyte of nothing costs nothing to refuse."""
    os.truncate(job.receipt, 1 << 40)
    assert rejected(job.verify(), "receipt_file")


AS_NOBODY = (
    "import os, sys; sys.path.insert(0, 'alone'); import bind_receipt\n"
    "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    "sys.exit(bind_receipt.main(sys.argv[1:]))\n"
)


@pytest.mark.parametrize("name", ["diff", "prompt", "receipt"])
def test_unreadable_file(job: Job, name: str) -> None:
    """Mode 0000 rejects for whoever has no power over permissions."""
    job.directory.chmod(0o755)
    path: Path = getattr(job, name)
    path.chmod(0)
    here = Job(Path(), job.python)
    flags = here.flags(receipt=str(here.receipt))
    done = run([*job.python, "-c", AS_NOBODY, "verify", *flags], cwd=job.directory)
    assert rejected(done, f"{name}_file")


def test_growing_diff_does_not_hold_the_reader(job: Job) -> None:
    """Whoever appends faster than we hash gets a reject, not an endless verification."""
    stop = threading.Event()

    def grow() -> None:
        with job.diff.open("ab", buffering=0) as file:
            while not stop.is_set() and file.tell() < 1 << 28:
                file.write(b"x" * (1 << 20))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        done = job.verify()
    finally:
        stop.set()
        writer.join()
    assert rejected(done, "diff_file") or rejected(done, "diff_sha256")


def test_memory_does_not_grow_with_the_diff(job: Job) -> None:
    """A diff of 512 MiB takes the memory of a diff of 200 bytes."""
    small = _peak_kilobytes(job)
    os.truncate(job.diff, 1 << 29)
    assert _peak_kilobytes(job) < small + 2048


def _peak_kilobytes(job: Job) -> int:
    argv = job.command("verify", *job.flags(receipt=str(job.receipt)))
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(argv[0], argv, {}, file_actions=silent)
    peak = os.wait4(child, 0)[2].ru_maxrss
    return peak if sys.platform == "linux" else peak // 1024


@needs("linux")
def test_interrupt_while_hashing_leaves_no_traceback(job: Job) -> None:
    """The keyboard's interrupt ends the command quietly, with the status a shell expects."""
    os.truncate(job.diff, 1 << 40)
    argv = job.command("verify", *job.flags(receipt=str(job.receipt)))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}) as child:
        while str(job.diff) not in _open_files(child.pid):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, out, err) == (130, b"", b"")


def _open_files(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed since it was listed
            found.add(str(link.readlink()))
    return found


@pytest.mark.parametrize("name", ["diff", "prompt"])
def test_each_flipped_bit_of_an_input_changes_its_digest(job: Job, name: str) -> None:
    """No byte of the diff or the prompt is left out of the binding."""
    path: Path = getattr(job, name)
    good = path.read_bytes()
    digests = {digest_file(path, follow_links=False)}
    for place in range(len(good)):
        for bit in range(8):
            changed = bytearray(good)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            digests.add(digest_file(path, follow_links=False))
    assert len(digests) == len(good) * 8 + 1


@pytest.mark.parametrize("name", ["diff", "prompt"])
def test_input_cut_at_each_byte_changes_its_digest(job: Job, name: str) -> None:
    """Nor is its length."""
    path: Path = getattr(job, name)
    good = path.read_bytes()
    digests = {digest_file(path, follow_links=False)}
    for size in range(len(good) - 1, 0, -1):
        os.truncate(path, size)
        digests.add(digest_file(path, follow_links=False))
    assert len(digests) == len(good)
