"""The job log as it should be, and the first bad line of every broken one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies

from bootstrap.chain import GENESIS, decode_head, decode_record, encode_record, follow
from bootstrap.errors import LogChainError
from bootstrap.joblog import JobLog, read_segment, read_tail, verify_all
from bootstrap.logread import SEGMENT_LIMIT
from tests.joblogs import GENERATION, GOLDEN, HEAD, LOG, golden_log, log_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _as_line(value: object) -> bytes:
    return json.dumps(value).encode()


BROKEN = sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem != "good")


def test_the_golden_log_verifies(tmp_path: Path) -> None:
    """A log that printf and sha256sum wrote is a log of ours, field for field."""
    with golden_log(tmp_path, "good.jsonl") as directory:
        records = list(verify_all(directory))
    assert [record.seq for record in records] == [1, 2, 3, 4, 5]
    assert [record.event for record in records][::4] == ["generation_minted", "accepted"]
    assert records[1].fields["paths"] == ["out/r\u00e9sum\u00e9"]
    assert records[3].fields["seconds"] == 1.5


def test_a_log_of_ours_is_a_chain_to_other_programs(tmp_path: Path) -> None:
    """sha256sum of each line is what the next line and the head say."""
    with log_of(tmp_path, 4):
        pass
    prev = "0" * 64
    for number, line in enumerate((tmp_path / LOG).read_bytes().splitlines(), start=1):
        record = json.loads(line)
        assert (record["seq"], record["prev"]) == (number, prev)
        assert list(record)[:4] == ["seq", "prev", "time", "event"]
        done = subprocess.run(["sha256sum"], input=line, capture_output=True, check=True)
        prev = done.stdout.split()[0].decode()
    assert json.loads((tmp_path / HEAD).read_bytes()) == {"seq": 4, "sha256": prev}


def test_a_record_is_returned_as_it_will_be_read(tmp_path: Path) -> None:
    """What append returns is what every reader finds, its digest included."""
    with log_of(tmp_path, 1) as directory:
        record = JobLog(directory, clock=lambda: 1.5).append("noted", value=[1, {"a": None}])
        assert read_tail(directory, 1) == (record,)
    assert record.time == "1970-01-01T00:00:01.500000Z"
    line = (tmp_path / LOG).read_bytes().splitlines()[-1]
    assert record.sha256 == hashlib.sha256(line).hexdigest()


@pytest.mark.parametrize("name", BROKEN)
def test_verification_names_the_first_bad_line(tmp_path: Path, name: str) -> None:
    """Each golden defect is found at the line that its file name says."""
    with golden_log(tmp_path, f"{name}.jsonl") as directory:
        with pytest.raises(LogChainError) as caught:
            list(verify_all(directory))
        assert caught.value.what.endswith(f"{LOG} line {name.rpartition('-')[2]}")
        assert "--seal-broken" in caught.value.remedy


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_segment_is_refused(tmp_path: Path, name: str) -> None:
    """Whoever reads the segment stops with status 77."""
    with golden_log(tmp_path, f"{name}.jsonl") as directory:
        with pytest.raises(LogChainError) as caught:
            read_segment(directory, GENERATION)
        assert caught.value.status == 77


@pytest.mark.parametrize(
    "name", ["dropped-last-5", "edited-last-5", "reindented-last-5", "emptied-1"]
)
def test_nothing_is_appended_to_a_broken_end(tmp_path: Path, name: str) -> None:
    """A tail that is not what the head says is refused and left as it is."""
    with golden_log(tmp_path, f"{name}.jsonl") as directory:
        before = (tmp_path / LOG).read_bytes(), (tmp_path / HEAD).read_bytes()
        with pytest.raises(LogChainError):
            JobLog(directory).append("noted")
        assert ((tmp_path / LOG).read_bytes(), (tmp_path / HEAD).read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "expected", "found"),
    [
        ("dropped-3", "seq 3", "seq 4"),
        ("swapped-3", "seq 3", "seq 4"),
        ("repeated-4", "seq 4", "seq 3"),
        ("edited-4", "prev ", "prev "),
        ("reindented-3", "the compact spelling", "another spelling"),
        ("number-4", "the compact spelling", "another spelling"),
        ("dropped-last-5", "5 lines as job-log.head says", "the end"),
        ("edited-last-5", "line 5 with sha256", "line 5 with sha256"),
        ("no-json-3", "one JSON object", "json: "),
    ],
)
def test_verification_says_what_is_wrong(
    tmp_path: Path, name: str, expected: str, found: str
) -> None:
    """The words tell a lost line from an edited one and from one spelled otherwise."""
    with golden_log(tmp_path, f"{name}.jsonl") as directory, pytest.raises(LogChainError) as caught:
        list(verify_all(directory))
    assert caught.value.expected.startswith(expected)
    assert caught.value.found.startswith(found)


def test_a_flipped_byte_is_always_found(tmp_path: Path) -> None:
    """No single byte of log or head can change unseen, whichever reader looks."""
    with golden_log(tmp_path, "good.jsonl") as directory:
        for name in (LOG, HEAD):
            good = (tmp_path / name).read_bytes()
            for place in range(len(good)):
                (tmp_path / name).write_bytes(
                    good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
                )
                with pytest.raises(LogChainError):
                    list(verify_all(directory))
                with pytest.raises(LogChainError):
                    read_segment(directory, GENERATION)
            (tmp_path / name).write_bytes(good)


def test_a_head_that_is_gone_is_missed(tmp_path: Path) -> None:
    """More than one record without a head is no crash's trace."""
    with golden_log(tmp_path, "good.jsonl") as directory:
        (tmp_path / HEAD).unlink()
        with pytest.raises(LogChainError, match="line 5"):
            JobLog(directory).append("noted")
        with pytest.raises(LogChainError, match="line 5"):
            list(verify_all(directory))


def test_a_head_from_an_earlier_day_is_refused(tmp_path: Path) -> None:
    """A head two records behind shows that one of the two files was put back."""
    with log_of(tmp_path, 3) as directory:
        old = (tmp_path / HEAD).read_bytes()
        JobLog(directory).append("noted")
        JobLog(directory).append("noted")
        (tmp_path / HEAD).write_bytes(old)
        with pytest.raises(LogChainError, match="line 3 with sha256"):
            JobLog(directory).append("noted")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"null\n", b'{"seq":0,"sha256":"%s"}\n' % (b"0" * 64), b"x" * 5000],
)
def test_a_head_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    """A head file that no runner wrote is never taken for none."""
    with log_of(tmp_path, 2) as directory:
        (tmp_path / HEAD).write_bytes(content)
        with pytest.raises(LogChainError, match=HEAD):
            JobLog(directory).append("noted")
        with pytest.raises(LogChainError, match=HEAD):
            list(verify_all(directory))


def test_a_log_deleted_with_its_head_is_missed(tmp_path: Path) -> None:
    """The attempts that lie beside it show that there was a log."""
    with log_of(tmp_path, 2) as directory:
        (tmp_path / "attempts" / "att-1").mkdir(parents=True)
        (tmp_path / LOG).unlink()
        (tmp_path / HEAD).unlink()
        with pytest.raises(LogChainError, match="no log"):
            list(verify_all(directory))
        with pytest.raises(LogChainError, match="no log"):
            JobLog(directory).append("noted")


def test_a_new_log_is_empty_and_whole(tmp_path: Path) -> None:
    """Before the first record there is nothing to read and nothing wrong."""
    with log_of(tmp_path) as directory:
        assert list(verify_all(directory)) == []
        assert read_tail(directory, 5) == ()
        assert read_segment(directory, None) == ()
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "hard link"])
def test_a_log_that_is_no_file_of_its_own_is_refused(tmp_path: Path, kind: str) -> None:
    """A planted link, directory or FIFO is refused at once and not written through."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    plant: dict[str, Callable[[Path], None]] = {
        "link": lambda path: path.symlink_to(outside),
        "directory": lambda path: path.mkdir(),
        "fifo": os.mkfifo,
        "hard link": lambda path: path.hardlink_to(outside),
    }
    with log_of(tmp_path / "state") as directory:
        plant[kind](tmp_path / "state" / LOG)
        with pytest.raises(LogChainError):
            JobLog(directory).append("noted")
        with pytest.raises(LogChainError):
            list(verify_all(directory))
    assert outside.read_bytes() == b""


def test_a_segment_goes_back_to_its_own_generation(tmp_path: Path) -> None:
    """It begins with the record that minted it, and shows that another was minted since."""
    with log_of(tmp_path) as directory:
        log = JobLog(directory)
        for event, generation in (("generation_minted", "gen-a"), ("noted", "gen-a")):
            log.append(event, generation=generation)
        log.append("generation_minted", generation="gen-b")
        assert [record.seq for record in read_segment(directory, "gen-a")] == [1, 2, 3]
        assert [record.seq for record in read_segment(directory, "gen-b")] == [3]
        assert [record.seq for record in read_segment(directory, None)] == [3]
        with pytest.raises(LogChainError, match="gen-c"):
            read_segment(directory, "gen-c")


def test_an_edit_before_the_segment_is_for_full_verification(tmp_path: Path) -> None:
    """A reader of the segment does not see it; `verify_all` does."""
    with log_of(tmp_path, 3) as directory:
        JobLog(directory).append("generation_minted", generation="gen-b")
        content = (tmp_path / LOG).read_bytes()
        (tmp_path / LOG).write_bytes(content.replace(b'"number":1', b'"number":7'))
        assert len(read_segment(directory, "gen-b")) == 1
        with pytest.raises(LogChainError, match="line 3"):
            list(verify_all(directory))


def test_a_reader_holds_a_bounded_segment(tmp_path: Path) -> None:
    """A generation that is not within the last records is not looked for without end."""
    line = '{{"seq":{},"prev":"{}","time":"t","event":"noted"}}'
    prev, lines = "0" * 64, []
    for seq in range(1, SEGMENT_LIMIT + 3):
        lines.append(line.format(seq, prev))
        prev = hashlib.sha256(lines[-1].encode()).hexdigest()
    (tmp_path / LOG).write_text("\n".join(lines) + "\n")
    (tmp_path / HEAD).write_text(f'{{"seq":{len(lines)},"sha256":"{prev}"}}\n')
    with log_of(tmp_path) as directory, pytest.raises(LogChainError, match=str(SEGMENT_LIMIT)):
        read_segment(directory, None)


@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        "\udcff\udcfe",
        "\ud83d",
        "caf\u00e9 \U0001f600",
        "\u2028\u202e\0",
        "::x::",
        "\\udcff",
    ],
)
def test_any_text_stays_on_its_line(tmp_path: Path, text: str) -> None:
    """A name that is not UTF-8 is written as its escape, every other text as it is."""
    with log_of(tmp_path, 1) as directory:
        JobLog(directory).append("noted", **{"name": text, text: 1})
        (record,) = read_tail(directory, 1)
    expected = text.encode("utf-8", "backslashreplace").decode()
    assert record.fields == {"name": expected, expected: 1}
    assert (tmp_path / LOG).read_bytes().isascii()
    assert (tmp_path / LOG).read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"seq": 1},
        {"prev": ""},
        {"time": ""},
        {"value": float("nan")},
        {"value": float("inf")},
        {"value": 10**1000},
        {"value": json.loads("[" * 100 + "]" * 100)},
        {"value": "x" * 1024 * 1024},
    ],
)
def test_a_record_that_no_line_can_hold_is_refused(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    """Such fields are a programming error, and the log stays as it was."""
    with log_of(tmp_path, 1) as directory:
        before = (tmp_path / LOG).read_bytes()
        with pytest.raises(ValueError, match=r"."):
            JobLog(directory).append("noted", **fields)
        assert (tmp_path / LOG).read_bytes() == before


JSON_VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.text()
    | strategies.floats(allow_nan=False, allow_infinity=False),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(strategies.dictionaries(strategies.text(), JSON_VALUES))
def test_every_record_is_read_as_it_was_written(fields: dict[str, object]) -> None:
    """Whatever JSON a record holds, strict and fast reading give the same back."""
    own = {
        key: value for key, value in fields.items() if key not in ("seq", "prev", "time", "event")
    }
    line = encode_record(GENESIS, "t", "noted", own)
    record = decode_record(line, "line 1")
    assert follow(GENESIS, line, "log") == record
    assert record.fields == own
    assert record.sha256 == hashlib.sha256(line).hexdigest()


@settings(max_examples=60, deadline=None)
@given(strategies.binary() | strategies.text().map(str.encode) | JSON_VALUES.map(_as_line))
def test_any_other_bytes_are_one_refusal(line: bytes) -> None:
    """No line that is not a record raises anything but the log's own error."""
    with pytest.raises(LogChainError):
        decode_record(line, "line 1")
    with pytest.raises(LogChainError):
        follow(GENESIS, line, "log")
    with pytest.raises(LogChainError):
        decode_head(line, "head")


def test_a_line_without_end_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """A gigabyte without a newline is neither a record nor a torn one."""
    with log_of(tmp_path, 2) as directory:
        os.truncate(tmp_path / LOG, 1 << 30)
        with pytest.raises(LogChainError, match="a longer one"):
            JobLog(directory).append("noted")
        with pytest.raises(LogChainError, match="a longer one"):
            list(verify_all(directory))


def test_a_deeply_nested_line_is_refused(tmp_path: Path) -> None:
    """A hundred thousand brackets are one clear refusal."""
    with log_of(tmp_path, 1) as directory:
        with (tmp_path / LOG).open("ab") as file:
            file.write(b"[" * 100_000 + b"\n")
        with pytest.raises(LogChainError, match="line 2"):
            list(verify_all(directory))
        with pytest.raises(LogChainError, match="last line"):
            JobLog(directory).append("noted")
