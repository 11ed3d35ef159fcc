"""The workspace lock: the kernel's word alone says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import (
    ConfigurationError,
    InterruptedRunError,
    LockHeldError,
    StorageError,
    TamperedStateError,
)
from bootstrap.files import Directory, open_directory
from bootstrap.lock import LOCK_NAME, hold_lock
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLDER = """
import sys, time
from pathlib import Path
from bootstrap.files import open_directory
from bootstrap.lock import hold_lock
with hold_lock(open_directory(Path(sys.argv[1])), float(sys.argv[2])):
    print("held", flush=True)
    {0}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    """Open a state directory without a lock file."""
    with open_directory(tmp_path) as opened:
        yield opened


@contextmanager
def holder(
    directory: Directory, then: str = "sys.stdin.read()", wait: float = 60
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that takes the lock, says so, and does something while it holds it."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(then), str(directory.path), str(wait)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _read_line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout
    return child.stdout.readline()


def _says_nothing(child: subprocess.Popen[bytes], seconds: float) -> bool:
    assert child.stdout
    return select.select([child.stdout], [], [], seconds)[0] == []


def test_a_held_lock_is_refused_at_once_and_names_its_holder(directory: Directory) -> None:
    """Without a wait the second runner ends with 75, and hears which process is first."""
    with holder(directory) as child:
        assert _read_line(child) == b"held\n"
        with pytest.raises(LockHeldError) as caught, hold_lock(directory, 0):
            pass
        assert caught.value.status == 75
        assert caught.value.found in (
            f"the lock held by process {child.pid}",
            "the lock held by another process",
        )
        assert "--wait" in caught.value.remedy


def test_a_lock_is_not_taken_twice_by_one_process(directory: Directory) -> None:
    """Two jobs of one process exclude each other too."""
    with hold_lock(directory, 0), pytest.raises(LockHeldError), hold_lock(directory, 0.1):
        pass
    with hold_lock(directory, 0):
        pass


@pytest.mark.parametrize("content", [b"", b"1\n", b"999999999\n", b"\xff garbage \0" * 500])
def test_a_lock_file_that_was_left_behind_means_nothing(
    directory: Directory, content: bytes
) -> None:
    """Empty, garbage, a dead pid, pid 1: nobody holds the lock, and the bytes stay."""
    (directory.path / LOCK_NAME).write_bytes(content)
    with hold_lock(directory, 0):
        pass
    assert (directory.path / LOCK_NAME).read_bytes() == content


def test_the_lock_file_is_private_and_never_unlinked(directory: Directory) -> None:
    """The next runner locks the very same file."""
    with hold_lock(directory, 0):
        status = (directory.path / LOCK_NAME).stat()
        assert status.st_mode & 0o777 == 0o600
    with hold_lock(directory, 0):
        assert (directory.path / LOCK_NAME).stat().st_ino == status.st_ino
    assert os.listdir(directory.path) == [LOCK_NAME]


def test_a_holder_that_is_killed_leaves_no_lock(directory: Directory) -> None:
    """SIGKILL frees the lock with the process."""
    with holder(directory) as child:
        assert _read_line(child) == b"held\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
        with hold_lock(directory, 0):
            pass


def test_a_daemon_of_the_holder_does_not_inherit_the_lock(directory: Directory) -> None:
    """A child that outlives the runner, started with every descriptor, holds nothing."""
    start = (
        "import subprocess; p = subprocess.Popen(['sleep', '60'], close_fds=False); print(p.pid)"
    )
    with holder(directory, start) as child:
        assert _read_line(child) == b"held\n"
        daemon = int(_read_line(child))
        child.wait()
        with hold_lock(directory, 0):
            os.kill(daemon, signal.SIGKILL)


def test_a_fork_of_the_holder_does_not_keep_the_lock(directory: Directory) -> None:
    """Released means released, also while a child is between fork and exec."""
    fork = "import os; p = os.fork(); print(p) if p else time.sleep(60)"
    with holder(directory, fork) as child:
        assert _read_line(child) == b"held\n"
        copy = int(_read_line(child))
        try:
            with hold_lock(directory, 20):
                pass
        finally:
            os.kill(copy, signal.SIGKILL)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda path: path.symlink_to("elsewhere"), "symbolic link"),
        (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
        (os.mkfifo, "file type p"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.hardlink_to(path.parent / "another"), "2 links"),
    ],
)
def test_a_lock_path_that_is_no_file_of_its_own_is_refused(
    directory: Directory, plant: Callable[[Path], None], found: str
) -> None:
    """A link, FIFO, directory or hard link is refused at once, followed by nobody."""
    (directory.path / "another").touch()
    plant(directory.path / LOCK_NAME)
    with pytest.raises(TamperedStateError) as caught, hold_lock(directory, 60):
        pass
    assert caught.value.status == 77
    assert found in caught.value.found
    assert not (directory.path / "elsewhere").exists()


@needs("root")
def test_a_lock_file_of_another_owner_is_refused(directory: Directory) -> None:
    """Its owner could hold the lock for ever, or put another file in its place."""
    (directory.path / LOCK_NAME).touch()
    os.chown(directory.path / LOCK_NAME, 12345, 12345)
    with pytest.raises(TamperedStateError, match="owner 12345"), hold_lock(directory, 0):
        pass


@pytest.mark.parametrize("move", [Path.unlink, lambda path: path.rename(f"{path}.old")])
def test_a_lock_file_that_goes_while_held_is_noticed(
    directory: Directory, move: Callable[[Path], None]
) -> None:
    """The holder can ask whether another runner could have a lock of its own by now."""
    with hold_lock(directory, 0) as lock:
        lock.require_held()
        move(directory.path / LOCK_NAME)
        with pytest.raises(TamperedStateError, match="another file, or none"):
            lock.require_held()
        (directory.path / LOCK_NAME).touch()
        with pytest.raises(TamperedStateError, match="another file, or none"):
            lock.require_held()


def test_who_waited_for_a_file_that_was_replaced_waits_for_the_new_one(
    directory: Directory,
) -> None:
    """The old file is freed while another runner holds the new one: one at a time enters."""
    with hold_lock(directory, 0) as first, holder(directory) as waiter:
        assert _says_nothing(waiter, 0.5)
        (directory.path / LOCK_NAME).unlink()
        with hold_lock(directory, 0):
            fcntl.flock(first.fd, fcntl.LOCK_UN)
            assert _says_nothing(waiter, 0.5)
        assert _read_line(waiter) == b"held\n"


def test_waiters_hold_the_lock_one_after_another(directory: Directory, tmp_path: Path) -> None:
    """Six processes wait; each enters alone and all get their turn."""
    alone = (
        "import os; p = sys.argv[1] + '/inside';"
        "os.close(os.open(p, os.O_CREAT | os.O_EXCL)); time.sleep(0.02); os.unlink(p)"
    )
    script = HOLDER.format(alone)
    with hold_lock(directory, 0):
        command = [sys.executable, "-c", script, str(tmp_path), "60"]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(6)]
    assert [child.communicate()[0] for child in children] == [b"held\n"] * 6
    assert [child.returncode for child in children] == [0] * 6


def test_what_is_called_between_tries_can_end_the_waiting(directory: Directory) -> None:
    """A signal that arrived while waiting is not slept through."""

    def stop() -> None:
        raise InterruptedRunError(
            "waiting", expected="no signal", found="SIGTERM", remedy="start again"
        )

    with (
        hold_lock(directory, 0),
        pytest.raises(InterruptedRunError),
        hold_lock(directory, 3600, stop),
    ):
        pass


def test_a_filesystem_without_locks_is_refused(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no softer kind to fall back to."""

    def fail(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(ConfigurationError, match="that can lock"), hold_lock(directory, 0):
        pass
    assert os.listdir(directory.path) == [LOCK_NAME]


@needs("plain-user")
def test_a_directory_that_cannot_be_written_is_named(directory: Directory) -> None:
    """The message says which file and why."""
    directory.path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"), hold_lock(directory, 0):
        pass
