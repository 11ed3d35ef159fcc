"""A decision is final: what was rejected, aborted, consumed or outlived is never accepted."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.jobs import BLOCKER, DIFF, until

if TYPE_CHECKING:
    from tests.jobs import Job


def test_a_rejected_attempt_stays_rejected_with_a_passing_receipt(job: Job) -> None:
    """A failed verdict is not undone by a receipt that says pass, nor by asking again."""
    assert job.run(scorer=job.scorer("fail")).stdout == "reject: verdict\n"
    receipt = job.attempts[0] / "receipt.json"
    receipt.chmod(0o600)
    receipt.write_text(receipt.read_text().replace('"fail"', '"pass"'))
    assert {job.gate(job.last) for _ in range(3)} == {"reject: job_log,attempt_state"}


def test_an_aborted_attempt_stays_aborted(job: Job) -> None:
    """Interrupted, and given the receipt and the copies of an accepted one: never accepted."""
    go = job.directory / "running"
    words = job.run_words("--agent", job.agent(BLOCKER, str(go)))
    with job.start(*words) as runner:
        until(go.exists)
        runner.terminate()
        runner.communicate(timeout=60)
    aborted = job.last
    assert job.gate(aborted).startswith("reject: ")
    job.diff.write_text(DIFF)  # the agent's start had wiped it
    assert job.run().stdout == "accept\n"
    for name in ("receipt.json", "patch.diff", "score", "decision.json"):
        shutil.copy(
            job.state / "attempts" / job.last / name, job.state / "attempts" / aborted / name
        )
    says = job.gate(aborted)
    assert says.startswith("reject: ")
    assert "attempt_state" in says


def test_a_consumed_attempt_is_accepted_once(job: Job) -> None:
    """The first `--consume` accepts; every later gate, consuming or not, refuses."""
    assert job.run().stdout == "accept\n"
    assert job.gate(job.last) == job.gate(job.last, "--consume") == "accept"
    assert job.gate(job.last, "--consume") == job.gate(job.last) == "reject: attempt_state"
    assert job.gate(job.last, "--require", "scored=diff") == "reject: attempt_state"


def test_a_reject_that_was_consumed_is_final(job: Job) -> None:
    """A gate that recorded its no refuses also once the inputs are put back."""
    assert job.run().stdout == "accept\n"
    diff = job.diff.read_bytes()
    job.diff.write_bytes(diff + b"\n")
    assert job.gate(job.last) == "reject: diff_sha256"
    job.diff.write_bytes(diff)
    assert job.gate(job.last) == "accept"
    job.diff.write_bytes(diff + b"\n")
    assert job.gate(job.last, "--consume") == "reject: diff_sha256"
    job.diff.write_bytes(diff)
    assert job.gate(job.last) == "reject: attempt_state"


def test_an_attempt_of_an_earlier_generation_is_over(job: Job) -> None:
    """A new bootstrap, finished or killed as soon as it is minted, ends all before it."""
    assert job.run().stdout == "accept\n"
    first = job.last
    words = job.run_words()
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 1, *words) == -9
    assert job.gate(first) == "reject: attempt_state"
    assert job.run().stdout == "accept\n"
    assert job.gate(first) == "reject: attempt_state"
    assert job.gate(job.last) == "accept"


def test_a_sealed_log_accepts_nothing_of_the_broken_one(job: Job) -> None:
    """Once a broken log is closed aside, its attempts are over, and new ones are judged."""
    assert job.run().stdout == "accept\n"
    first = job.last
    log = job.state / "job-log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"model-a", b"model-b", 1))
    assert job.gate(first) == "77"
    assert job.command("log", "--seal-broken").returncode == 0
    assert job.gate(first).startswith(("reject: ", "77"))
    assert job.run().stdout == "accept\n"
    assert job.gate(first) == "reject: attempt_state"
    assert job.gate(job.last) == "accept"
