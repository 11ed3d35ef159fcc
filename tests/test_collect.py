from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attempt_runner.collect import tally_log
from bootstrap.chain import Head, encode_head, encode_record
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog
from tests.jobs import ROOT_COMMAND, clean_environment, make_job

if TYPE_CHECKING:
    from collections.abc import Sequence

# Counts a log in a process of its own and prints the most memory that it ever had, in kB.
MEASURE = """\
import sys
from pathlib import Path
from attempt_runner.collect import tally_log
print(tally_log(Path(sys.argv[1])).records)
(line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(line.split()[1])  # ru_maxrss would be the parent's, where that was larger
"""


def collect(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [*ROOT_COMMAND, "collect", *words],
        capture_output=True,
        check=False,
        env=clean_environment(),
        text=True,
        timeout=100,
    )


def counts(row: dict[str, Any], names: Sequence[str]) -> tuple[int, ...]:
    """Return some counts of a row."""
    return tuple(row[name] for name in names)


def test_outcomes_of_many_states_are_summed(tmp_path: Path) -> None:
    """Each attempt is counted once, by its first decision, and a later reject changes nothing."""
    names = ("attempts", "accepted", "rejected", "aborted", "open", "failed_over")
    copied = tmp_path / "copied"
    for number, words in enumerate((["pass"], ["fail"])):
        (tmp_path / str(number)).mkdir()
        job = make_job(tmp_path / str(number))
        job.run(scorer=job.scorer(*words))
        if number == 0:
            job.diff.write_text("another\n")
            assert job.gate(job.last, "--consume").startswith("reject: ")
        shutil.copytree(job.state, copied / str(number))
    done = collect(str(copied), "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert counts(document["total"], names) == (2, 1, 1, 0, 0, 0)
    assert document["total"]["rejects"] == {"verdict": 1}
    assert [counts(row, names)[:3] for row in document["logs"]] == [(1, 1, 0), (1, 0, 1)]
    table = collect(str(copied / "0"), str(copied / "1"), "--table").stdout.splitlines()
    assert table[-1] == "rejects: verdict=1"
    assert len(table) == 5


def test_a_broken_chain_is_told_and_is_77(tmp_path: Path) -> None:
    """The sum of what cannot be trusted is never a success."""
    job = make_job(tmp_path)
    job.run()
    log = job.state / "job-log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"model-a", b"model-b", 1))
    done = collect(str(job.state_root), "--json")
    assert done.returncode == 77
    (row,) = json.loads(done.stdout)["logs"]
    assert "job-log.jsonl line" in row["broken"]


def test_a_place_without_logs_is_refused(tmp_path: Path) -> None:
    """A mistyped path must not look like a fleet without rejects."""
    assert collect(str(tmp_path)).returncode == 78
    assert collect(str(tmp_path / "none")).returncode == 78


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A log of 20,000 records is counted in the memory that one of 5,000 needs."""
    needed = []
    for count in (5_000, 20_000):
        place = tmp_path / str(count)
        place.mkdir(mode=0o700)
        _write_log(place, count)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(place)],
            capture_output=True,
            check=True,
            cwd=Path(__file__).parent.parent,
            text=True,
            timeout=100,
        )
        records, memory = map(int, done.stdout.split())
        assert records == count
        needed.append(memory)
    assert needed[1] < needed[0] + 4096  # kB; the larger log alone has 3,000 more


def _write_log(place: Path, count: int) -> None:
    """Write a log as the runner would, without its syncs: the first record is the runner's own."""
    with open_directory(place) as directory:
        JobLog(directory).append("noted", number=0)
    log = place / "job-log.jsonl"
    lines = [log.read_bytes().removesuffix(b"\n")]
    head = _head_of(lines[0], 1)
    for number in range(1, count):
        lines.append(encode_record(head, "2026-11-30T21:44:55Z", "noted", {"number": number}))
        head = _head_of(lines[-1], number + 1)
    log.write_bytes(b"\n".join(lines) + b"\n")
    (place / "job-log.head").write_bytes(encode_head(head))
    assert tally_log(place).broken == ""


def _head_of(line: bytes, seq: int) -> Head:
    return Head(seq, hashlib.sha256(line).hexdigest())
