"""Nothing that came from outside reaches a terminal unescaped, or the start of a line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import DIFF, clean_environment
from tests.nasty import NASTY, STARTS

if TYPE_CHECKING:
    from tests.jobs import Job

DRIVER: Final = Path(__file__).with_name("nasty.py")
SHARE: Final = 8  # of the 200 texts in each place; scripts/soak tries all

# A scorer whose reasons are what its argument file holds.
TELLING: Final = """\
import json, os, sys
with open(sys.argv[2], encoding="utf-8") as file:
    reasons = json.load(file)
score = {"verdict": sys.argv[1], "reasons": reasons, "nonce": os.environ["SCORE_NONCE"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
print(*reasons, sep="\\n", flush=True)
"""


def require_escaped(text: str) -> None:
    """Check that a terminal's text is printable ASCII and no line begins with data."""
    assert re.fullmatch("[ -~\n]*", text)
    assert not [line for line in text.split("\n") if line.startswith(STARTS)]


def feed(job: Job, count: int) -> int:
    """Run every command with nasty texts in its place; return how many command lines."""
    words = (str(job.workspace), str(job.state_root), job.last, str(count))
    done = subprocess.run(
        [sys.executable, "-I", str(DRIVER), *words],
        capture_output=True,
        check=True,
        cwd=job.directory,
        env=clean_environment(),
        text=True,
        timeout=600,
    )
    told = json.loads(done.stdout)
    assert told["complaints"] == []
    return int(told["tried"])


def test_nasty_words_of_a_command_line_are_escaped(job: Job) -> None:
    """Two hundred texts, in shares, in every place of every command where one can come from."""
    assert len(NASTY) == 200
    assert job.run().stdout == "accept\n"
    assert feed(job, SHARE) >= 38 * SHARE


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_nasty_reasons_and_names_are_escaped(job: Job, verdict: str) -> None:
    """Two hundred reasons, a diff and planted scores with such names: told as ASCII, kept true."""
    reasons = [text for text in NASTY if text.isprintable() or "\udcff" not in text]
    path = job.script("reasons.json", json.dumps(reasons))
    names = [text.replace("/", "|")[:200] for text in reasons[::20]]
    for name in names:
        (job.workspace / name).write_text("planted")
    diff = job.workspace / "diff\n::error::owned"
    diff.write_text(DIFF)
    flags = [word for name in names for word in ("--score-path", name)]
    run = job.run(
        *(*flags, "--diff", str(diff)), scorer=job.scorer(verdict, str(path), text=TELLING)
    )
    assert run.stdout == ("accept\n" if verdict == "pass" else "reject: verdict\n")
    kept = json.loads((job.attempts[0] / "receipt.json").read_bytes())["reasons"]
    assert {text for text in reasons if len(text) < 4096} <= set(kept)
    for words in (
        ("show", job.last),
        ("show", job.last, "--json"),
        ("explain", job.last),
        ("log",),
        ("log", "--json"),
        ("gate", job.last, "--require", NASTY[0]),
    ):
        told = job.command(*words)
        assert told.returncode in (0, 1), told.stderr
        said = "" if words[0] == "gate" else told.stdout
        for stream in (said, told.stderr, run.stderr):
            require_escaped(stream)
    verdict_line = "accept" if verdict == "pass" else "reject: verdict,attempt_state"
    assert job.gate(job.last) == verdict_line
