from __future__ import annotations

import random
from typing import Final, NamedTuple

import pytest

from tests.scores import golden, read_bytes


class Sample(NamedTuple):
    """A file, its threshold, and the number in it that the threshold judges."""

    file: str
    threshold: str = ""
    number: bytes = b""

    @property
    def format(self) -> str:
        """The format, which is the file's directory."""
        return self.file.partition("/")[0]

    def verdict(self, data: bytes) -> str:
        """Read damaged bytes by the sample's own rules."""
        demand = [self.threshold] if self.threshold else []
        return read_bytes(self.format, data, *demand).verdict


PASSES: Final = [
    Sample("score-json/pass.json"),
    Sample("junit/pass.xml"),
    Sample("junit/skip.xml"),
    Sample("ctrf/pass.json"),
    Sample("tap/pass.tap"),
    Sample("tap/skip.tap"),
    Sample("tap/subtests.tap"),
    Sample("inspect/ok.json", "accuracy>=0.5"),
    Sample("inspect/ok.eval", "accuracy>=0.5"),
    Sample("swebench/report.ok__ok-1.json"),
    Sample("swebench/run_resolved.json"),
    Sample("harbor/ok-trial.json", "reward>=0.5"),
    Sample("promptfoo/pass.json"),
    Sample("lm-eval/ok.json", "acc,none>=0.5"),
    Sample("sarif/succeeded.sarif"),
]
# Where the threshold judges one number, that number is the score: nothing else in the file
# can tell another one from damage, so its own digits are left alone. Files that hold one
# wrong count are not here: damage can mend them.
OTHERS: Final = [
    Sample("score-json/fail.json"),
    Sample("score-json/unknown_key.json"),
    Sample("junit/fail.xml"),
    Sample("junit/allskip.xml"),
    Sample("junit/error_only.xml"),
    Sample("ctrf/fail.json"),
    Sample("ctrf/other.json"),
    Sample("ctrf/flaky.json"),
    Sample("tap/fail.tap"),
    Sample("tap/skip_all.tap"),
    Sample("tap/subtest_failed.tap"),
    Sample("inspect/ok.json", "accuracy>=0.8", b'"value": 0.5'),
    Sample("inspect/ok.eval", "accuracy>=0.8"),
    Sample("inspect/partial.json", "mean>=0.5"),
    Sample("inspect/partial.eval", "mean>=0.5"),
    Sample("swebench/report.bad__bad-1.json"),
    Sample("swebench/run_report.json"),
    Sample("harbor/fail-trial.json", "reward>=0.5", b'"reward": 0.0'),
    Sample("harbor/exception.json", "reward>=0.5"),
    Sample("promptfoo/fail.json"),
    Sample("promptfoo/err.json"),
    Sample("lm-eval/named.json", "acc,none>=0.5", b"0.3333333333333333"),
    Sample("lm-eval/limited.json", "acc,none>=0.5"),
    Sample("sarif/ok.sarif"),
    Sample("sarif/syn.sarif"),
]


def _steps(size: int, most: int) -> range:
    return range(0, size, max(1, size // most))


@pytest.mark.parametrize("sample", [*PASSES, *OTHERS], ids=lambda sample: sample.file)
def test_a_file_that_is_cut_anywhere_is_no_pass(sample: Sample) -> None:
    """Of a document only the line's end after it may be missing; of TAP not even that."""
    whole = golden(sample.file)
    document = whole if sample.format == "tap" else whole.rstrip()
    ends = {*_steps(len(document), 300), *range(max(0, len(document) - 80), len(document))}
    passed = [end for end in ends if sample.verdict(whole[:end]) == "pass"]
    assert passed == []


@pytest.mark.parametrize("sample", OTHERS, ids=lambda sample: sample.file)
def test_a_flipped_bit_makes_no_pass(sample: Sample) -> None:
    """No single bit turns what is not a pass into one."""
    whole = golden(sample.file)
    spared = _spared(whole, sample.number)
    for at in _steps(len(whole), 120):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            assert at in spared or sample.verdict(bytes(damaged)) != "pass", (at, bit)


@pytest.mark.parametrize("sample", OTHERS, ids=lambda sample: sample.file)
def test_overwritten_bytes_make_no_pass(sample: Sample) -> None:
    """Nor does a run of random bytes, or the loss or repetition of a line."""
    whole = golden(sample.file)
    spared = _spared(whole, sample.number)
    chance = random.Random(sample.file)  # noqa: S311 - a sweep that repeats itself exactly
    for _ in range(300):
        at, size = chance.randrange(len(whole)), chance.randrange(1, 9)
        if not spared.isdisjoint(range(at, at + size)):
            continue
        damaged = whole[:at] + chance.randbytes(size) + whole[at + size :]
        assert sample.verdict(damaged) != "pass", (at, size)


@pytest.mark.parametrize(
    "sample", [item for item in OTHERS if item.format == "tap"], ids=lambda sample: sample.file
)
def test_lost_repeated_and_swapped_lines_make_no_pass(sample: Sample) -> None:
    """A format of lines is held together by its plan."""
    lines = golden(sample.file).splitlines(keepends=True)
    for at in range(len(lines)):
        lost = lines[:at] + lines[at + 1 :]
        repeated = lines[: at + 1] + lines[at:]
        swapped = lines[:at] + lines[at : at + 2][::-1] + lines[at + 2 :]
        verdicts = {sample.verdict(b"".join(damaged)) for damaged in (lost, repeated, swapped)}
        assert "pass" not in verdicts, at


def _spared(whole: bytes, number: bytes) -> set[int]:
    if not number:
        return set()
    first = whole.index(number)
    return set(range(first, first + len(number)))
