from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from attempt_runner.scores import eval_archive
from attempt_runner.scores.formats import TABLE
from attempt_runner.scores.score import MAX_CAUSE_CHARS, MAX_SCORE_BYTES
from tests.scores import golden, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.scores.score import Score

FILES = [name for name, form in TABLE.items() if form.module]
METRICS = {"inspect": "accuracy>=0", "harbor": "reward>=0", "lm-eval": "acc>=0"}


def _read(name: str, data: bytes) -> Score:
    demand = [METRICS[name]] if name in METRICS else []
    return read_bytes(name, data, *demand, exit_code=0)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 1000,
        b"\xff\xfe" * 1000,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"<a>" * 200_000,
        b"<testsuites>" * 200_000,
        b"<testsuites>" + b"<testsuite>" * 200_000,
        b"1..1000000\n" + b"ok\n" * 1000,
        b"ok\n    " * 10_000,
        b"".join(b" " * 4 * depth + b"ok\n" for depth in range(500)),
        b"PK\x03\x04" + b"\0" * 100,
        b"null",
        b"true",
        b"[]",
        b'"pass"',
        b"9" * 10_000,
        b"{}",
    ],
    ids=lambda data: repr(data[:14]),
)
def test_what_is_no_score_at_all_is_one_clear_refusal(name: str, data: bytes) -> None:
    """Whatever the bytes are, the answer is a verdict with one bounded line of cause."""
    score = _read(name, data)
    assert score.verdict in ("error", "incomplete", "no_tests")
    assert 0 < len(score.cause) <= MAX_CAUSE_CHARS
    assert score.reasons == ()


def test_a_deep_but_well_formed_document_is_refused() -> None:
    """200,000 elements nested and closed again exhaust nothing."""
    depth = 200_000
    data = b"<testsuites>" + b"<testsuite>" * depth + b"</testsuite>" * depth + b"</testsuites>"
    score = _read("junit", data)
    assert score.verdict == "error"
    assert "levels" in score.cause


def test_a_hundred_thousand_cases_are_read_without_a_tree() -> None:
    """A large suite is a matter of seconds; its messages are bounded as they come."""
    case = b'<testcase name="a"><failure>' + b"x" * 50 + b"</failure></testcase>"
    data = b'<testsuite tests="100000" failures="100000">' + case * 100_000 + b"</testsuite>"
    assert len(data) < MAX_SCORE_BYTES
    score = read_bytes("junit", data, exit_code=1)
    assert (score.verdict, score.counts.failed) == ("fail", 100_000)
    assert score.reasons[-1].startswith("[cut: ")


def test_a_stream_of_more_tests_than_anybody_writes_is_refused() -> None:
    """The work for sixteen megabytes of `ok` is bounded."""
    score = _read("tap", b"ok\n" * (MAX_SCORE_BYTES // 3))
    assert (score.verdict, "at most" in score.cause) == ("error", True)


def test_one_huge_message_is_bounded_while_it_is_read() -> None:
    """Eight megabytes of traceback become one reason of a receipt's length."""
    failure = b"<failure>" + b"line\n" * 1_600_000 + b"</failure>"
    data = (
        b'<testsuite tests="1" failures="1"><testcase name="a">'
        + failure
        + b"</testcase></testsuite>"
    )
    score = read_bytes("junit", data, exit_code=1)
    assert score.verdict == "fail"
    assert sum(map(len, score.reasons)) < 10_000


def _archive(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def _members() -> dict[str, bytes]:
    log = json.loads(golden("inspect/ok.json"))
    samples = log.pop("samples")
    names = [f"samples/{sample['id']}_epoch_{sample['epoch']}.json" for sample in samples]
    bodies = [json.dumps(sample).encode() for sample in samples]
    return {"header.json": json.dumps(log).encode(), **dict(zip(names, bodies, strict=True))}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_of_an_older_compression_is_read(compression: int) -> None:
    """Logs from before Zstandard were deflated."""
    assert _read("inspect", _archive(_members(), compression)).verdict == "pass"


def test_an_archive_without_its_header_is_incomplete() -> None:
    """Inspect writes the header last: a run that was killed has none."""
    members = _members()
    del members["header.json"]
    assert _read("inspect", _archive(members)).verdict == "incomplete"


def test_an_archive_without_a_sample_is_incomplete() -> None:
    """The samples are counted, not believed."""
    members = _members()
    del members["samples/s2_epoch_1.json"]
    assert _read("inspect", _archive(members)).verdict == "incomplete"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_that_names_a_member_twice_is_refused() -> None:
    """Two readers must not see two scores in one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in [*_members().items(), ("header.json", b"{}")]:
            archive.writestr(name, data)
    score = _read("inspect", file.getvalue())
    assert (score.verdict, "each member once" in score.cause) == ("error", True)


def test_a_member_that_swells_is_refused() -> None:
    """A bomb is bounded by what comes out of it, whatever it declares."""
    members = {**_members(), "samples/bomb.json": b" " * (MAX_SCORE_BYTES + 1)}
    score = _read("inspect", _archive(members))
    assert (score.verdict, "at most" in score.cause) == ("error", True)


def test_members_that_swell_together_are_refused() -> None:
    """The sum of all members is bounded before one is read."""
    many = eval_archive.MAX_TOTAL_BYTES // MAX_SCORE_BYTES + 1
    bombs = {f"samples/{at}.json": b" " * MAX_SCORE_BYTES for at in range(many)}
    score = _read("inspect", _archive({**_members(), **bombs}))
    assert (score.verdict, "at most" in score.cause) == ("error", True)


def test_an_encrypted_member_is_refused() -> None:
    """A flag that says encrypted makes a member unreadable, and so the log."""
    data = bytearray(_archive(_members(), zipfile.ZIP_STORED))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert _read("inspect", bytes(data)).verdict == "error"
