from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Final

import pytest

from attempt_runner.scores.formats import FORMATS, TABLE
from attempt_runner.scores.read import check_rules, read_score
from attempt_runner.scores.rules import MAX_REASON_BYTES, bounded
from attempt_runner.scores.score import ScoreRules
from bootstrap.bind_receipt import MAX_REASON_CHARS, MAX_REASONS, Identity, build_receipt
from bootstrap.errors import UsageError
from tests.scores import golden, read_bytes, rules

PASSES: Final = {
    "score-json": "score-json/pass.json",
    "junit": "junit/pass.xml",
    "ctrf": "ctrf/pass.json",
    "tap": "tap/pass.tap",
    "inspect": "inspect/ok.eval",
    "swebench": "swebench/report.ok__ok-1.json",
    "harbor": "harbor/ok-trial.json",
    "promptfoo": "promptfoo/pass.json",
    "lm-eval": "lm-eval/ok.json",
    "sarif": "sarif/succeeded.sarif",
}
FAILS: Final = {
    "score-json": "score-json/fail.json",
    "junit": "junit/fail.xml",
    "ctrf": "ctrf/fail.json",
    "tap": "tap/fail.tap",
    "inspect": "inspect/ok.json",
    "swebench": "swebench/report.bad__bad-1.json",
    "harbor": "harbor/fail-trial.json",
    "promptfoo": "promptfoo/fail.json",
    "lm-eval": "lm-eval/named.json",
    "sarif": "sarif/syn.sarif",
}
METRICS: Final = {"inspect": "accuracy", "harbor": "reward", "lm-eval": "acc,none"}
# By the tools' own conventions: the exit codes that go with a fail, and some that do not.
FAIL_CODES: Final = {
    "score-json": ([0, 1, 2, 75, 137], []),
    "junit": ([1, 2, 127], [0, 128, 137]),
    "ctrf": ([1, 2, 127], [0, 128, 137]),
    "tap": ([1, 2, 127], [0, 128, 137]),
    "inspect": ([0], [1, 2, 137]),
    "swebench": ([0], [1, 137]),
    "harbor": ([0], [1, 137]),
    "promptfoo": ([100], [0, 1, 137]),
    "lm-eval": ([0], [1, 137]),
    "sarif": ([0, 1, 2], [128, 137]),
}


def _demand(name: str, comparison: str) -> list[str]:
    return [f"{METRICS[name]}{comparison}"] if name in METRICS else []


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_needs_exit_code_0(name: str) -> None:
    """A scorer that says pass and exits otherwise has not said pass."""
    data, demand = golden(PASSES[name]), _demand(name, ">=0.5")
    assert read_bytes(name, data, *demand, exit_code=0).verdict == "pass"
    for code in (1, 2, 5, 75, 100, 137, 255, 256, -9):
        score = read_bytes(name, data, *demand, exit_code=code)
        assert (score.verdict, score.reasons) == ("error", ())
        assert str(code) in score.cause


@pytest.mark.parametrize("name", FAILS)
def test_a_fail_needs_the_exit_code_of_its_tool(name: str) -> None:
    """A fail stands only with an exit code that its tool gives with one."""
    data, demand = golden(FAILS[name]), _demand(name, ">=0.6")
    agreeing, others = FAIL_CODES[name]
    found = [read_bytes(name, data, *demand, exit_code=code).verdict for code in agreeing + others]
    assert found == ["fail"] * len(agreeing) + ["error"] * len(others)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(0, "pass"), (1, "fail"), (2, "fail"), (125, "fail")]
    + [(code, "error") for code in (75, 126, 127, 128, 137, 255, 256, -9, None)],
)
def test_an_exit_code_alone_is_a_verdict_only_where_it_means_one(
    code: int | None, verdict: str
) -> None:
    """Unavailable, not startable, killed: none of these judged anything."""
    score = read_score("exit-code", [], code, rules())
    assert score.verdict == verdict
    assert bool(score.cause) == (verdict == "error")


def test_only_exit_codes_are_warned_of() -> None:
    """Who judges by exit code alone is told what it is worth."""
    assert [name for name in FORMATS if TABLE[name].warning] == ["exit-code"]


@pytest.mark.parametrize("name", ["junit", "ctrf", "tap", "swebench", "inspect", "lm-eval"])
def test_fewer_tests_than_demanded_are_no_pass(name: str) -> None:
    """The operator's minimum counts what ran."""
    data, demand = golden(PASSES[name]), _demand(name, ">=0.5")
    assert read_bytes(name, data, *demand, min_tests=2).verdict == "pass"
    score = read_bytes(name, data, *demand, min_tests=4)
    assert (score.verdict, score.reasons) == ("no_tests", ())
    assert "at least 4" in score.cause


def test_skipped_tests_do_not_make_up_the_minimum() -> None:
    """Three of four tests were skipped: one ran."""
    assert read_bytes("junit", golden("junit/skip.xml"), min_tests=2).verdict == "no_tests"


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        ("junit/skip.xml", "pass"),
        ("junit/fail.xml", "fail"),
        ("junit/allskip.xml", "no_tests"),
        ("junit/miscounted.xml", "error"),
        ("junit/empty.xml", "error"),
    ],
)
def test_several_files_count_as_their_worst(second: str, verdict: str) -> None:
    """All must parse and pass; the counts are added up."""
    files = [("a.xml", golden("junit/pass.xml")), ("b.xml", golden(second))]
    score = read_score("junit", files, None, rules())
    assert score.verdict == verdict
    assert ("b.xml: " in score.cause) == (verdict in ("no_tests", "error"))
    assert score.counts.tests >= 2


def test_several_files_share_one_exit_code_and_one_minimum() -> None:
    """The scorer ran once, whatever it left: its code goes with the whole."""
    files = [("a.xml", golden("junit/pass.xml")), ("b.xml", golden("junit/fail.xml"))]
    assert read_score("junit", files, 1, rules()).verdict == "fail"
    assert read_score("junit", files, 0, rules()).verdict == "error"
    twice = [files[0], ("c.xml", golden("junit/pass.xml"))]
    assert read_score("junit", twice, 0, rules(min_tests=4)).verdict == "pass"
    assert read_score("junit", twice, 0, rules(min_tests=5)).verdict == "no_tests"


def test_no_file_at_all_is_no_score() -> None:
    """Nothing to read is an error, never an empty pass."""
    assert read_score("junit", [], 0, rules()).verdict == "error"


def test_a_score_names_the_bytes_it_was_read_from() -> None:
    """One file by its digest, several by the digest of what `sha256sum` prints for them."""
    data = golden("junit/pass.xml")
    one = hashlib.sha256(data).hexdigest()
    assert read_bytes("junit", data).source_sha256 == one
    two = read_score("junit", [("a.xml", data), ("b.xml", data)], 0, rules())
    lines = f"{one}  a.xml\n{one}  b.xml\n".encode()
    assert two.source_sha256 == hashlib.sha256(lines).hexdigest()


@pytest.mark.parametrize(
    ("nonce", "attempt_id", "verdict"),
    [
        (None, None, "pass"),
        ("n", "a", "pass"),
        ("m", None, "error"),
        (None, "b", "error"),
        ("", None, "error"),
        ("n\n", None, "error"),
    ],
)
def test_a_native_score_of_another_scoring_is_none(
    nonce: str | None, attempt_id: str | None, verdict: str
) -> None:
    """A nonce or attempt id that is present must be the one of this scoring."""
    given = {"nonce": nonce, "attempt_id": attempt_id}
    named = {key: value for key, value in given.items() if value is not None}
    data = json.dumps({"verdict": "pass", "reasons": ["x"], **named}).encode()
    own = ScoreRules(nonce="n", attempt_id="a")
    score = read_score("score-json", [("score", data)], 0, own)
    assert score.verdict == verdict


def test_reasons_are_kept_as_written() -> None:
    """Nothing is stripped or escaped on the way in."""
    reasons = ["\x1b[2Kaccept", " padded \n::error::", "\u202egnp", "\u2028", "{}"]
    text = [*reasons[:3], "x\u2028", reasons[4]]
    data = json.dumps({"verdict": "fail", "reasons": text}).encode()
    assert read_bytes("score-json", data).reasons == tuple(text)


@pytest.mark.parametrize(
    "reasons",
    [
        ["x"] * 5000,
        ["y" * 100_000],
        [" " * 5000 + "z"],
        ["\U0001f600" * MAX_REASON_CHARS] * 50,
        ["x" * MAX_REASON_CHARS] * MAX_REASONS,
    ],
)
def test_reasons_are_cut_to_what_a_receipt_holds(reasons: list[str]) -> None:
    """However many and however long, a receipt can be made, and it says what was cut."""
    kept = bounded(reasons)
    assert len(kept) <= MAX_REASONS
    assert max(map(len, kept)) <= MAX_REASON_CHARS
    assert len(json.dumps(kept)) <= MAX_REASON_BYTES + 10_000
    assert "[cut: " in kept[-1]
    identity = Identity("0" * 64, "0" * 64, "model-a", "gen-1", "att-1")
    assert build_receipt(identity, "fail", kept)


def test_reasons_within_the_limits_are_not_cut() -> None:
    """A thousand reasons of full length each are only cut by their sum."""
    assert bounded(["x"] * MAX_REASONS) == ("x",) * MAX_REASONS
    assert bounded(["x" * MAX_REASON_CHARS]) == ("x" * MAX_REASON_CHARS,)


@pytest.mark.parametrize(
    ("name", "demands"),
    [
        ("unknown", rules()),
        ("JUNIT", rules()),
        ("junit", rules("accuracy>=0.8")),
        ("score-json", rules(min_tests=2)),
        ("exit-code", rules(min_tests=2)),
        ("exit-code", rules("accuracy>=0.8")),
        ("junit", rules(min_tests=0)),
        ("junit", rules(min_tests=-1)),
    ],
)
def test_rules_that_a_format_cannot_keep_are_refused(name: str, demands: ScoreRules) -> None:
    """A demand is kept or refused before anything runs, never passed over."""
    with pytest.raises(UsageError):
        check_rules(name, demands)


def _import(code: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", code]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_a_run_imports_the_reader_of_its_own_format_only() -> None:
    """No other format's library is paid for, or needed."""
    done = _import(
        "import sys\n"
        "from attempt_runner.scores.read import read_score\n"
        "from tests.scores import rules\n"
        "read_score('score-json', [('s', b'{}')], 0, rules())\n"
        "print([name for name in ('defusedxml', 'tap', 'backports', 'zipfile', 'xml')"
        " if name in sys.modules])\n"
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_missing_library_is_a_refused_configuration() -> None:
    """Without tap.py nothing runs, and the message says what to install."""
    done = _import(
        "import sys\n"
        "sys.modules['tap'] = None\n"
        "from attempt_runner.scores.read import check_rules\n"
        "from bootstrap.errors import ConfigurationError\n"
        "from tests.scores import rules\n"
        "try:\n"
        "    check_rules('tap', rules())\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
    )
    assert "install attempt-runner[tap]" in done.stdout


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the interpreter reads Zstandard itself")
def test_a_missing_decompressor_is_no_score() -> None:
    """An archive that cannot be opened is an error that says what to install."""
    done = _import(
        "import sys\n"
        "sys.modules['backports.zstd'] = None\n"
        "from tests.scores import golden, read_bytes\n"
        "score = read_bytes('inspect', golden('inspect/ok.eval'), 'accuracy>=0')\n"
        "print(score.verdict, score.cause)\n"
    )
    assert done.stdout.startswith("error ")
    assert "install attempt-runner[inspect]" in done.stdout
