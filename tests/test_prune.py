from __future__ import annotations

import json
import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.chain import Head, encode_record
from tests.jobs import Job, until
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

YEAR_2000: Final = "2000-01-01T00:00:00.000000Z"


def accept(job: Job, *flags: str) -> str:
    """Make one accepted attempt; return its id."""
    assert job.run(*flags).stdout == "accept\n"
    return job.last


def left(job: Job) -> set[str]:
    """Return the ids of the attempts whose directories are there."""
    return set(os.listdir(job.state / "attempts"))


def test_the_last_attempts_are_kept_and_the_log_says_what_went(job: Job) -> None:
    """Two of three go, oldest first; the log keeps every record, and the third is accepted."""
    first, second, third = (accept(job) for _ in range(3))
    before = job.events
    done = job.command("prune", "--keep", "1")
    assert (done.returncode, done.stdout) == (0, f"pruned {first}\npruned {second}\n")
    assert left(job) == {third}
    assert job.events == [*before, "pruned"]
    assert job.log[-1]["names"] == sorted([first, second])
    assert job.command("log", "--verify").returncode == 0
    assert job.gate(first) == "reject: missing_receipt"
    assert job.gate(third) == "accept"
    assert accept(job) not in (first, second, third)


def test_a_dry_run_tells_and_leaves_all(job: Job) -> None:
    """What would go is printed; neither directories nor log change."""
    attempt = accept(job)
    before = job.events
    done = job.command("prune", "--keep", "0", "--dry-run", "--json")
    told = {"attempts": [attempt], "tails": [], "baseline": False, "dry_run": True}
    assert json.loads(done.stdout) == told
    assert (left(job), job.events) == ({attempt}, before)


def test_age_is_that_of_the_closing_record(job: Job) -> None:
    """An attempt closed just now is younger than an hour, and no age at all is older than 0 h."""
    attempt = accept(job)
    assert job.command("prune", "--older-than", "1h").stdout == "nothing to prune\n"
    assert job.command("prune", "--older-than", "0h").stdout == f"pruned {attempt}\n"
    assert job.command("prune", "--older-than", "0h").stdout == "nothing to prune\n"


def test_an_open_attempt_and_an_unknown_one_stay(job: Job) -> None:
    """What the log does not close, and what it does not name, is no attempt to remove."""
    words = job.run_words("--agent", job.agent())
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 6, *words) == -9
    (job.state / "attempts" / f"att-20261130T214455Z-{'0' * 32}").mkdir()
    before = left(job)
    assert len(before) == 2
    assert job.command("prune", "--keep", "0").stdout == "nothing to prune\n"
    assert left(job) == before


def test_a_running_attempt_is_waited_for_and_never_touched(job: Job) -> None:
    """The lock of a job under way keeps prune out until that job is closed."""
    go = job.directory / "go"
    slow = job.agent(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n time.sleep(.01)\n"
        "open('change.diff', 'w').write(open(sys.argv[2]).read())\n",
        str(go),
        str(job.script("kept.diff", job.diff.read_text())),
    )
    with job.start(*job.run_words("--agent", slow)) as runner:
        until(lambda: job.has_log and "attempt_started" in job.events)
        with job.start("prune", "--keep", "0") as pruner:
            assert left(job) == {job.last}
            go.touch()
            assert runner.communicate(timeout=60)[0] == "accept\n"
            pruned = pruner.communicate(timeout=60)[0]
    assert pruned == f"pruned {job.last}\n"


def test_a_quarantined_tail_goes_with_the_attempts_of_its_time(job: Job) -> None:
    """A torn tail that a later attempt outlived is removed; the record of it stays."""
    accept(job)
    with (job.state / "job-log.jsonl").open("ab") as log:
        log.write(b'{"seq":')
    second, third = accept(job), accept(job)
    (tail,) = job.state.glob("job-log.torn-*")
    done = job.command("prune", "--keep", "2")
    assert (tail.name in done.stdout, second in done.stdout) == (True, False)
    assert left(job) == {second, third}
    assert not tail.exists()
    assert job.of("tail_quarantined")["file"] == tail.name


def test_a_tail_nobody_noted_is_no_tail_to_prune(job: Job) -> None:
    """One whose record is still to be written waits for it, and is noted by prune's own append."""
    accept(job)
    torn = job.state / "job-log.torn-0123456789abcdef.new"
    torn.write_bytes(b"half a li")
    job.command("prune", "--keep", "0")
    assert job.events[-2:] == ["tail_quarantined", "pruned"]
    assert torn.with_suffix("").exists()


@needs("git")
def test_a_baseline_goes_with_the_last_attempt_that_used_it(job: Job) -> None:
    """Kept for an attempt to come and beside one that is kept; removed with it."""
    capture = ("--capture", "--isolation", "none", "--scratch-dir", str(job.directory))
    assert job.command("bootstrap", "--model", "model-a", *capture[:1]).returncode == 0
    baseline = job.state / "baseline"
    job.command("prune", "--keep", "0")
    assert baseline.exists()
    words = ("--prompt", str(job.prompt), *capture, "--agent", job.agent(), "--", *job.scorer())
    assert job.command("attempt", *words).stdout == "accept\n"
    job.command("prune", "--keep", "1")
    assert baseline.exists()
    assert job.command("prune", "--keep", "0").stdout == f"pruned {job.last}\npruned baseline\n"
    assert not baseline.exists()


@pytest.mark.parametrize(
    ("event", "name", "count"),
    [
        ("os.mkdir", "pruning", 1),
        ("os.rename", "first", 1),
        ("os.rename", "second", 1),
        ("open", "job-log.jsonl", 1),
        ("os.rename", "job-log.head", 1),
        ("os.rmdir", "first", 1),
    ],
)
def test_a_killed_prune_is_finished_by_the_next(
    job: Job, event: str, name: str, count: int
) -> None:
    """Killed at any step: no attempt is left by halves, and the next call records and removes."""
    ids = {"first": accept(job), "second": accept(job)}
    whole = {path.name for path in job.attempts[0].iterdir()}
    words = ("prune", "--keep", "0")
    assert job.interrupt("SIGKILL", event, ids.get(name, name), count, *words) == -9
    for attempt in left(job):
        assert {path.name for path in (job.state / "attempts" / attempt).iterdir()} == whole
    assert job.command(*words).returncode == 0
    assert left(job) == set()
    assert not (job.state / "pruning").exists()
    recorded = {n for item in job.log if item["event"] == "pruned" for n in item["names"]}
    assert recorded == set(ids.values())
    assert job.command("log", "--verify").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--keep", "1", "--older-than", "1d"),
        ("--keep", "-1"),
        ("--older-than", "30"),
        ("--older-than", "30d\n"),
        ("--older-than", "\u0663d"),
        ("--older-than", "999999w"),
        ("--older-than", ""),
    ],
)
def test_what_is_no_choice_is_bad_usage(job: Job, words: tuple[str, ...]) -> None:
    """Exactly one of a number and an age, each in its one spelling."""
    accept(job)
    done = job.command("prune", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(left(job)) == 1


def test_a_forged_time_is_a_broken_log(job: Job) -> None:
    """A record whose time is none is not guessed at: 77, and nothing goes."""
    accept(job)
    attempt = job.last
    lines = (job.state / "job-log.jsonl").read_bytes()
    closing = lines.splitlines()[-1]
    time = json.loads(closing)["time"]
    forge(job.state, lines.replace(closing, closing.replace(time.encode(), b"yesterday")))
    done = job.command("prune", "--keep", "0")
    assert (done.returncode, done.stdout, left(job)) == (77, "", {attempt})
    assert "yesterday" in done.stderr


def forge(state: Path, lines: bytes) -> None:
    """Write a log whose last line was changed, and a head that agrees with it."""
    (state / "job-log.jsonl").write_bytes(lines)
    last = lines.splitlines()[-1]
    head = {"seq": json.loads(last)["seq"], "sha256": sha256(last).hexdigest()}
    (state / "job-log.head").write_text(json.dumps(head, separators=(",", ":")) + "\n")


def test_more_names_than_one_record_holds_are_recorded_in_several(job: Job) -> None:
    """A thousand a record keeps each line far below its limit."""
    accept(job)
    lines = (job.state / "job-log.jsonl").read_bytes().splitlines()
    head = Head(len(lines), sha256(lines[-1]).hexdigest())
    for number in range(1100):
        attempt = f"att-20000101T000000Z-{number:032x}"
        (job.state / "attempts" / attempt).mkdir()
        for event in ("attempt_started", "attempt_aborted"):
            lines.append(encode_record(head, YEAR_2000, event, {"attempt_id": attempt}))
            head = Head(head.seq + 1, sha256(lines[-1]).hexdigest())
    forge(job.state, b"".join(line + b"\n" for line in lines))
    done = job.command("prune", "--older-than", "8w")
    assert done.stdout.count("pruned ") == 1100
    assert [len(item["names"]) for item in job.log if item["event"] == "pruned"] == [1000, 100]
    assert left(job) == {job.of("accepted")["attempt_id"]}
