"""Races: bytes that change while a runner seals, scores and judges them, or a gate judges them."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from attempt_runner.emit import emit_diff
from attempt_runner.evidence import load_evidence
from attempt_runner.gate import judge_evidence
from bootstrap.errors import RefusalError, RunnerError
from bootstrap.files import open_directory
from bootstrap.state import open_state
from tests.faults.liar import lying
from tests.jobs import DIFF, Job, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

OTHER: Final = DIFF.replace("+x = 2", "+x = 3")  # fits the base as well, and is scored otherwise
PROMPT: Final = "Make x two.\n"

# Passes a patch to two and no other, and says whose bytes it passed.
JUDGING: Final = """\
import hashlib, json, os
patch = open(os.environ["DIFF_FILE"], "rb").read()
tree = open(os.environ["TREE_DIR"] + "/app.py").read()
verdict = "pass" if tree == "x = 2\\n" else "fail"
scored = hashlib.sha256(patch).hexdigest()
score = {"verdict": verdict, "reasons": [scored], "nonce": os.environ["SCORE_NONCE"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
"""


def race_run(directory: Path, seed: int) -> str:
    """Run a job whose inputs and results are rewritten all the while; return its outcome.

    It ends in an accept of the bytes that were scored, in a reject, or before any attempt.
    """
    directory.mkdir(parents=True, exist_ok=True)
    job = make_job(directory)
    words = job.run_words("--base", str(job.base), scorer=job.scorer(text=JUDGING))
    receipts = f"{job.state_root}/*/attempts/*/receipt.json"
    scores = f"{directory}/scratch/*/scorer/score/score"
    lies = {
        str(job.diff): [DIFF, OTHER],
        str(job.prompt): [PROMPT, "Make x three.\n"],
        receipts: ['{"verdict": "pass"}'],
        # With a wrong nonce: one without any is a score, and a writer in the scorer's own
        # directory is nobody that isolation none keeps out.
        scores: ['{"verdict": "pass", "reasons": ["planted"], "nonce": "guessed"}'],
    }
    # Results are lied about in one round of four: they end nearly all of those.
    if seed % 4:
        del lies[receipts], lies[scores]
    with lying(seed, lies):
        done = job.command(*words)
    assert done.returncode in (0, 1, 77, 78), done
    assert "Traceback" not in done.stderr
    if done.returncode != 0:
        assert (done.stdout == "") is (done.returncode != 1), done
        return done.stdout.strip() or str(done.returncode)
    # Under none a process of the same user that is no child of ours can plant a score.
    require_scored(job, () if seed % 4 else (["planted"],))
    return "accept"


def require_scored(job: Job, planted: Sequence[list[str]] = ()) -> None:
    """Check that what was accepted last is what was scored, and what the log says.

    `planted` are reasons that an accept may also have.
    """
    attempt = job.state / "attempts" / job.last
    sealed = sha256((attempt / "patch.diff").read_bytes()).hexdigest()
    assert sealed == sha256(DIFF.encode()).hexdigest()
    assert json.loads((attempt / "score").read_bytes())["reasons"] in ([sealed], *planted)
    assert job.of("inputs_sealed")["diff_sha256"] == sealed
    assert job.log[-1]["event"] == "accepted"


def race_gate(job: Job, seed: int, rounds: int) -> list[str]:
    """Judge an accepted attempt while everything of it is rewritten; return the outcomes.

    Whatever is accepted, the bytes that are emitted are those that were scored.
    """
    attempt = job.state / "attempts" / job.last
    receipt = (attempt / "receipt.json").read_text()
    lies = {
        str(job.diff): [DIFF, OTHER],
        str(job.prompt): [PROMPT, "Make x three.\n"],
        str(attempt / "patch.diff"): [DIFF, OTHER],
        str(attempt / "prompt"): [PROMPT, "Make x three.\n"],
        str(attempt / "receipt.json"): [receipt, forged(receipt)],
    }
    with lying(seed, lies):
        return list(_gated(job, rounds))


def forged(receipt: str) -> str:
    """Return a receipt that binds the other patch."""
    scored, other = (sha256(text.encode()).hexdigest() for text in (DIFF, OTHER))
    return receipt.replace(scored, other)


def _gated(job: Job, rounds: int) -> Iterator[str]:
    target = job.directory / "emitted"
    for _ in range(rounds):
        target.unlink(missing_ok=True)
        try:
            _gate(job, target)
        except RefusalError as refused:
            assert not target.exists()
            yield f"reject: {','.join(refused.fields)}"
        except RunnerError as error:
            assert not target.exists()
            yield str(error.status)
        else:
            assert target.read_text() == DIFF
            yield "accept"


def _gate(job: Job, target: Path) -> None:
    with (
        open_state(job.workspace, job.state_root, create=False, named=True) as state,
        open_directory(job.workspace) as workspace,
    ):
        evidence = load_evidence(
            state, job.last, workspace, live_diff=None, live_prompt=None, claims={}
        )
        emit_diff(state, judge_evidence(evidence, "decided", {}), target)


def both_ways(outcomes: Sequence[str]) -> bool:
    """Tell whether a race was one: both sides won sometimes."""
    return {outcome == "accept" for outcome in outcomes} == {True, False}
