"""Many appenders and readers on one log, and a broken log closed aside."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import LogChainError, UsageError
from bootstrap.joblog import JobLog, read_segment, read_tail, verify_all
from bootstrap.logseal import seal_broken
from tests.joblogs import GENERATION, GOLDEN, HEAD, LOG, golden_log, log_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITER = """
import sys
from pathlib import Path
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog
log = JobLog(open_directory(Path(sys.argv[1])))
for number in range(int(sys.argv[3])):
    log.append("noted", writer=sys.argv[2], number=number, text="x" * 2000)
"""

READER = """
import sys
from pathlib import Path
from bootstrap.files import open_directory
from bootstrap.joblog import read_segment, read_tail, verify_all
directory = open_directory(Path(sys.argv[1]))
while not (Path(sys.argv[1]) / "stop").exists():
    whole = [record.seq for record in verify_all(directory)]
    assert whole == list(range(1, len(whole) + 1))
    assert len(read_segment(directory, sys.argv[2])) >= len(whole)
    assert read_tail(directory, 1)[0].seq >= len(whole)
"""


def _start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE)


def test_writers_and_readers_together_see_one_whole_chain(tmp_path: Path) -> None:
    """Eight processes append, three read: no record lost, no torn line seen, no gap."""
    with log_of(tmp_path, 1) as directory:
        readers = [_start(READER, str(tmp_path), GENERATION) for _ in range(3)]
        writers = [_start(WRITER, str(tmp_path), str(name), "25") for name in range(8)]
        errors = [child.communicate()[1] for child in writers]
        (tmp_path / "stop").touch()
        errors += [child.communicate()[1] for child in readers]
        assert errors == [b""] * 11
        records = list(verify_all(directory))
    assert [record.seq for record in records] == list(range(1, 202))
    for name in range(8):
        of_one = [r.fields["number"] for r in records if r.fields.get("writer") == str(name)]
        assert of_one == list(range(25))


def test_a_log_that_verifies_is_not_closed(tmp_path: Path) -> None:
    """A mistaken command changes nothing."""
    with golden_log(tmp_path, "good.jsonl") as directory:
        with pytest.raises(UsageError, match="5 records that verify"):
            seal_broken(directory)
        assert (tmp_path / LOG).read_bytes() == (GOLDEN / "good.jsonl").read_bytes()


@pytest.mark.parametrize("name", ["edited-4", "dropped-last-5", "emptied-1", "mark-1"])
def test_a_broken_log_is_kept_and_named_by_the_new_one(tmp_path: Path, name: str) -> None:
    """The new log's first record says where the old one lies, its digest, and what was wrong."""
    old = (GOLDEN / f"{name}.jsonl").read_bytes()
    with golden_log(tmp_path, f"{name}.jsonl") as directory:
        kept = seal_broken(directory)
        (record,) = verify_all(directory)
        JobLog(directory).append("noted")
        assert [r.event for r in verify_all(directory)] == ["log_sealed", "noted"]
        with pytest.raises(LogChainError, match="run a bootstrap"):
            read_segment(directory, GENERATION)
    assert (tmp_path / kept).read_bytes() == old
    assert (record.event, record.fields["file"]) == ("log_sealed", kept)
    assert record.fields["sha256"] == hashlib.sha256(old).hexdigest()
    assert record.fields["head"] == {"seq": 5, "sha256": _digest_of_last_good_line()}
    assert f"line {name.rpartition('-')[2]}" in str(record.fields["cause"])


def _digest_of_last_good_line() -> str:
    return hashlib.sha256((GOLDEN / "good.jsonl").read_bytes().splitlines()[-1]).hexdigest()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / LOG).unlink(),
        lambda path: (path / HEAD).unlink(),
        lambda path: (path / HEAD).write_bytes(b"nonsense"),
        lambda path: (path / "another").hardlink_to(path / LOG),
    ],
)
def test_any_broken_pair_of_files_can_be_closed(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A log that is gone, without head, or known under another name too, is closed as well."""
    with golden_log(tmp_path, "good.jsonl") as directory:
        damage(tmp_path)
        seal_broken(directory)
        assert [record.event for record in verify_all(directory)] == ["log_sealed"]
        assert len(read_tail(directory, 9)) == 1


def test_a_log_that_is_a_link_is_not_closed(tmp_path: Path) -> None:
    """What the link leads to is not renamed, written or linked."""
    (tmp_path / "outside").write_bytes(b"untouched")
    with log_of(tmp_path / "state") as directory:
        (tmp_path / "state" / LOG).symlink_to(tmp_path / "outside")
        with pytest.raises(LogChainError, match="regular file"):
            seal_broken(directory)
    assert (tmp_path / "outside").read_bytes() == b"untouched"
    assert os.stat(tmp_path / "outside").st_nlink == 1


KILLED = """
import os, sys
from pathlib import Path
from bootstrap.files import open_directory
from bootstrap.logseal import seal_broken

number, made = int(sys.argv[2]), 0
def wrap(real):
    def call(*args, **kwargs):
        global made
        made += 1
        if made == number:
            os.kill(os.getpid(), 9)
        return real(*args, **kwargs)
    return call
for name in ("write", "fsync", "replace", "link", "open"):
    setattr(os, name, wrap(getattr(os, name)))
seal_broken(open_directory(Path(sys.argv[1])))
sys.stdout.write("done\\n")
"""


def test_a_closing_that_is_killed_can_be_made_again(tmp_path: Path) -> None:
    """SIGKILL before any step: the old bytes stay, and the next call finishes the work."""
    old = (GOLDEN / "edited-4.jsonl").read_bytes()
    for number in range(1, 60):
        path = tmp_path / str(number)
        with golden_log(path, "edited-4.jsonl") as directory:
            script = [sys.executable, "-c", KILLED, str(path), str(number)]
            done = subprocess.run(script, capture_output=True, check=False)
            with suppress(UsageError):  # killed after the last step: nothing is broken any more
                seal_broken(directory)
            assert next(record.event for record in verify_all(directory)) == "log_sealed"
        kept = [file.read_bytes() for file in path.glob("job-log.broken-*.jsonl")]
        assert old in kept
        if done.stdout == b"done\n":
            break
    assert number > 8
