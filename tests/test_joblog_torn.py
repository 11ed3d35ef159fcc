"""A log that a crash or a full disk cut short: mended and noted, or refused, never built upon."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import LogChainError, RunnerError
from bootstrap.joblog import JobLog, read_segment, read_tail, verify_all
from tests.joblogs import GENERATION, HEAD, LOG, log_of
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bootstrap.files import Directory

CALLS: Final = ("write", "fsync", "replace", "ftruncate", "open")  # what can fail on a sick disk


def _events(directory: Directory) -> list[str]:
    return [record.event for record in verify_all(directory)]


def _cuts(path: Path) -> list[int]:
    """Return every length that cuts the log within its last two lines."""
    content = (path / LOG).read_bytes()
    return list(range(content.rindex(b"\n", 0, content.rindex(b"\n", 0, -1)), len(content)))


def test_a_line_that_the_head_knows_is_never_mended_away(tmp_path: Path) -> None:
    """Cut at any byte of its last two lines, a log whose head was written is refused."""
    with log_of(tmp_path, 3) as directory:
        content, head = (tmp_path / LOG).read_bytes(), (tmp_path / HEAD).read_bytes()
        for length in _cuts(tmp_path):
            (tmp_path / LOG).write_bytes(content[:length])
            with pytest.raises(LogChainError, match="3 lines as"):
                JobLog(directory).append("noted")
            with pytest.raises(LogChainError, match="3 lines as"):
                list(verify_all(directory))
            with pytest.raises(LogChainError):
                read_segment(directory, GENERATION)
        assert (tmp_path / HEAD).read_bytes() == head


def test_a_torn_last_line_is_kept_cut_and_noted(tmp_path: Path) -> None:
    """Cut at any byte of the line that was being written, the next append mends the log."""
    with log_of(tmp_path, 2) as directory:
        whole, head = (tmp_path / LOG).read_bytes(), (tmp_path / HEAD).read_bytes()
        JobLog(directory).append("lost", name="r\u00e9sum\u00e9")
        content = (tmp_path / LOG).read_bytes()
        for length in range(len(whole) + 1, len(content)):
            torn = content[len(whole) : length]
            (tmp_path / LOG).write_bytes(content[:length])
            (tmp_path / HEAD).write_bytes(head)
            assert len(read_tail(directory, 9)) == 2
            JobLog(directory).append("noted")
            note = read_tail(directory, 2)[0]
            assert _events(directory)[2:] == ["tail_quarantined", "noted"]
            assert (tmp_path / LOG).read_bytes().startswith(whole + b'{"seq":3,')
            assert note.fields["sha256"] == hashlib.sha256(torn).hexdigest()
            assert (tmp_path / str(note.fields["file"])).read_bytes() == torn


@pytest.mark.parametrize("torn", [b"caf\xc3", b"\0" * 100, b'{"seq":3', b"\r", b"[" * 70_000])
def test_any_bytes_behind_the_last_newline_are_a_torn_line(tmp_path: Path, torn: bytes) -> None:
    """Half a character, or the zeros of a lost block, are kept as they are."""
    with log_of(tmp_path, 2) as directory:
        with (tmp_path / LOG).open("ab") as file:
            file.write(torn)
        assert len(list(verify_all(directory))) == 2
        JobLog(directory).append("noted")
        assert _events(directory)[2:] == ["tail_quarantined", "noted"]
        (kept,) = tmp_path.glob("job-log.torn-*")
        assert kept.read_bytes() == torn


def test_a_first_line_that_is_torn_is_mended_too(tmp_path: Path) -> None:
    """The very first write may have been cut short."""
    with log_of(tmp_path) as directory:
        (tmp_path / LOG).write_bytes(b'{"seq":1,"pre')
        JobLog(directory).append("noted")
        assert _events(directory) == ["tail_quarantined", "noted"]


def test_a_head_one_record_behind_is_repaired_and_noted(tmp_path: Path) -> None:
    """A crash between line and head leaves the line in the log, and a note of it."""
    with log_of(tmp_path, 2) as directory:
        head = (tmp_path / HEAD).read_bytes()
        JobLog(directory).append("last_words")
        (tmp_path / HEAD).write_bytes(head)
        assert _events(directory)[2:] == ["last_words"]
        assert read_tail(directory, 1)[0].event == "last_words"
        JobLog(directory).append("noted")
        assert _events(directory)[2:] == ["last_words", "head_repaired", "noted"]


def test_a_first_record_without_a_head_is_repaired_and_noted(tmp_path: Path) -> None:
    """A crash before the first head was written leaves one line and no head."""
    with log_of(tmp_path, 1) as directory:
        (tmp_path / HEAD).unlink()
        JobLog(directory).append("noted")
        assert _events(directory) == ["generation_minted", "head_repaired", "noted"]


def _fail_at(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    """Let the `number`th of the system calls that change a disk fail."""
    made = count(1)

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if next(made) == number:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("torn", [b"", b'{"seq":3,"'])
def test_a_call_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, torn: bytes
) -> None:
    """Whichever call fails, earlier records stand, the failed one is not there, and no tear."""
    failed: RunnerError | None = None
    for number in range(1, 100):
        path = tmp_path / str(number)
        with log_of(path, 2) as directory:
            whole = (path / LOG).read_bytes()
            (path / LOG).write_bytes(whole + torn)
            failed = _append_while_failing(monkeypatch, directory, number, code)
            assert (path / LOG).read_bytes().startswith(whole)
            assert ("wanted" in _events(directory)) == (failed is None)
            JobLog(directory).append("after")
            assert _events(directory)[-1] == "after"
            assert ("tail_quarantined" in _events(directory)) == bool(torn)
            assert not list(path.glob("*.new"))
        if failed is None:
            break
        assert failed.status == 77
        assert str(path) in str(failed)
    assert number > 6


def _append_while_failing(
    monkeypatch: pytest.MonkeyPatch, directory: Directory, number: int, code: int
) -> RunnerError | None:
    with monkeypatch.context() as patch:
        _fail_at(patch, number, code)
        try:
            JobLog(directory).append("wanted")
        except RunnerError as error:
            return error
    return None


def test_a_line_written_byte_by_byte_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short writes are continued."""
    with log_of(tmp_path, 1) as directory:
        real = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1])))
            JobLog(directory).append("noted")
        assert _events(directory) == ["generation_minted", "noted"]


KILLED = """
import os, sys
from pathlib import Path
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog

number, made, after = int(sys.argv[2]), 0, sys.argv[3] == "after"
def wrap(real):
    def call(*args, **kwargs):
        global made
        made += 1
        if made == number and not after:
            os.kill(os.getpid(), 9)
        result = real(*args, **kwargs)
        if made == number:
            os.kill(os.getpid(), 9)
        return result
    return call
for name in ("write", "fsync", "replace", "ftruncate", "open"):
    setattr(os, name, wrap(getattr(os, name)))
log = JobLog(open_directory(Path(sys.argv[1])))
log.append("wanted")
sys.stdout.write("done\\n")
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_runner_killed_at_any_call_leaves_a_log_to_go_on_with(
    tmp_path: Path, moment: str
) -> None:
    """SIGKILL before and after every durable step: no record lost, the tear kept and noted."""
    number, done = 0, False
    while not done:
        number += 1
        path = tmp_path / str(number)
        with log_of(path, 2) as directory:
            torn = b'{"seq":3,"prev"'
            with (path / LOG).open("ab") as file:
                file.write(torn)
            child = subprocess.run(
                [sys.executable, "-c", KILLED, str(path), str(number), moment],
                capture_output=True,
                check=False,
            )
            done = child.stdout == b"done\n"
            assert done or child.returncode == -signal.SIGKILL, child.stderr
            list(verify_all(directory))
            JobLog(directory).append("noted")
            events = _events(directory)
            assert events[:2] == ["generation_minted", "noted"]
            assert events.count("tail_quarantined") >= 1
            kept = {r.fields["sha256"] for r in verify_all(directory) if "file" in r.fields}
            assert hashlib.sha256(torn).hexdigest() in kept
            assert not list(path.glob("*.torn*.new"))
    assert number > 10


def test_a_runner_killed_at_any_time_leaves_a_log_to_go_on_with(tmp_path: Path) -> None:
    """SIGKILL at no chosen moment, again and again, on one log."""
    script = (
        "import sys; from pathlib import Path; from bootstrap.files import open_directory\n"
        "from bootstrap.joblog import JobLog\n"
        "log = JobLog(open_directory(Path(sys.argv[1])))\n"
        "while True: print(log.append('noted', text='x' * 3000).seq, flush=True)\n"
    )
    acknowledged = 0
    with log_of(tmp_path, 1) as directory:
        for delay in range(12):
            child = subprocess.Popen(
                [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
            )
            assert child.stdout
            child.stdout.readline()
            time.sleep(delay / 500)
            child.kill()
            lines = child.stdout.read().split()
            child.wait()
            child.stdout.close()
            acknowledged = max([acknowledged, *map(int, lines)])
            assert len(list(verify_all(directory))) >= acknowledged
            JobLog(directory).append("noted")


FULL = """
import os, sys
from pathlib import Path
from bootstrap.errors import StorageError
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog, verify_all

state = Path(sys.argv[1])
log = JobLog(directory := open_directory(state))
for left in range(0, 3 * 4096, 512):
    log.append("noted")
    filler = state / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() - left))
    before = len(list(verify_all(directory)))
    written = 0
    try:
        for _ in range(10):
            log.append("filling", text="x" * 900)
            written += 1
    except StorageError as error:
        assert "No space left" in str(error), error
    else:
        assert left >= 8192, left
    assert len(list(verify_all(directory))) == before + written
    filler.unlink()
log.append("last")
print(len(list(verify_all(directory))))
"""


@needs("root", "mount")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """On a filesystem filled to every size that matters, an append is whole or not there."""
    mount = f'mount -t tmpfs -o size=96k none {tmp_path} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 24
