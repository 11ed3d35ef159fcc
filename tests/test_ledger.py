from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.attest import verify_attestation
from attempt_runner.ledger import consume, open_ledger, require_unused, revoke
from bootstrap.errors import ConfigurationError, LogChainError, RefusalError
from bootstrap.joblog import verify_all
from tests.attestations import (
    ATTEMPT,
    DIFF,
    GENERATION,
    GOLDEN,
    MODEL,
    PROMPT,
    expectations,
    golden_key,
)
from tests.machine import needs
from tests.signing import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from attempt_runner.gate import Accepted

FILE: Final = GOLDEN / "accept--ecdsa-p256.json"
RACERS: Final = 100
# Each racer is a process of its own that opens the ledger itself; all wait for one pipe to close.
RACE: Final = """\
import os, sys
from pathlib import Path
from attempt_runner.ledger import consume, open_ledger
from bootstrap.errors import RefusalError
from tests.test_ledger import accept_golden

accepted, path = accept_golden(), Path(sys.argv[1])
ready, go = os.pipe()
racers = []
for _ in range(int(sys.argv[2])):
    if not (pid := os.fork()):
        os.close(go)
        os.read(ready, 1)
        try:
            with open_ledger(path, create=True) as ledger:
                consume(ledger, accepted)
        except RefusalError as refused:
            os._exit(1 if refused.fields == ("attempt_state",) else 3)
        except BaseException:
            os._exit(4)
        os._exit(0)
    racers.append(pid)
os.close(go)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in racers))
"""


def accept_golden() -> Accepted:
    """Return the accept of the golden attestation."""
    return verify_attestation(FILE.read_bytes(), golden_key("ecdsa-p256"), expectations())


def _verify(*flags: str) -> CompletedProcess[str]:
    known = ("--diff", str(DIFF), "--prompt", str(PROMPT), "--model", MODEL)
    key = ("--public-key", str(GOLDEN / "ecdsa-p256.pub.pem"))
    return run("verify-attestation", str(FILE), *key, *known, *flags)


def test_an_attestation_is_consumed_once(tmp_path: Path) -> None:
    """The second use of one accept is a replay, whatever else is right about it."""
    ledger = ("--ledger", str(tmp_path / "parent" / "ledger"))
    first = _verify("--consume", *ledger)
    assert (first.returncode, first.stdout) == (0, "accept\n")
    assert (tmp_path / "parent" / "ledger").stat().st_mode & 0o7777 == 0o700
    second = _verify("--consume", *ledger)
    assert (second.returncode, second.stdout) == (1, "reject: attempt_state\n")
    looked = _verify("--workspace-gen", GENERATION, *ledger)
    assert (looked.returncode, looked.stdout) == (1, "reject: attempt_state\n")
    printed = run("log", *ledger, "--json")
    (record,) = map(json.loads, printed.stdout.splitlines())
    assert (record["event"], record["attempt_id"]) == ("consumed", ATTEMPT)


def test_what_is_refused_consumes_nothing(tmp_path: Path) -> None:
    """A mistyped model must not use an accept up."""
    ledger = ("--ledger", str(tmp_path / "ledger"))
    refused = _verify("--consume", *ledger, "--attempt-id", "another")
    assert (refused.returncode, refused.stdout) == (1, "reject: attempt_id\n")
    assert _verify("--attempt-id", ATTEMPT, *ledger).returncode == 0
    assert not (tmp_path / "ledger" / "job-log.jsonl").exists()


def test_a_lost_accept_line_does_not_free_the_attempt(tmp_path: Path) -> None:
    """The use is durable before it is told: who did not hear it has to run a new attempt."""
    key, words = str(GOLDEN / "ecdsa-p256.pub.pem"), ("--consume", "--ledger", str(tmp_path / "l"))
    argv = [sys.executable, "-I", "-m", "attempt_runner", "verify-attestation", str(FILE)]
    known = ["--public-key", key, "--diff", str(DIFF), "--prompt", str(PROMPT), "--model", MODEL]
    with open("/dev/full", "w", encoding="ascii") as full:
        lost = subprocess.run(
            [*argv, *known, *words], check=False, stdout=full, stderr=subprocess.PIPE
        )
    assert lost.returncode == 77
    assert _verify(*words).stdout == "reject: attempt_state\n"


def test_racing_gates_accept_once_in_total(tmp_path: Path) -> None:
    """Check and record are one step: of a hundred processes one accepts."""
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path / "ledger"), str(RACERS)],
        capture_output=True,
        check=False,
        cwd=Path(__file__).parent.parent,
        text=True,
        timeout=100,
    )
    assert done.stdout == f"{[0] + [1] * (RACERS - 1)}\n", done.stderr
    with open_ledger(tmp_path / "ledger", create=False) as ledger:
        assert [record.event for record in verify_all(ledger)] == ["consumed"]


def test_a_ledger_refuses_what_was_revoked_before_it_came(tmp_path: Path) -> None:
    """A revocation needs no attestation: it counts for one that comes later."""
    place = str(tmp_path / "ledger")
    revoked = run("revoke", ATTEMPT, "--reason", "leaked key", "--ledger", place)
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {ATTEMPT}\n")
    refused = _verify("--consume", "--ledger", place)
    assert (refused.returncode, refused.stdout) == (1, "reject: attempt_state\n")


def test_another_attempt_is_not_touched(tmp_path: Path) -> None:
    """What is used up or revoked is one attempt, not the ledger."""
    with open_ledger(tmp_path / "ledger", create=True) as ledger:
        revoke(ledger, ATTEMPT[:-1] + "9", "another one")
        require_unused(ledger, accept_golden())
        consume(ledger, accept_golden())
        with pytest.raises(RefusalError, match="consumed"):
            require_unused(ledger, accept_golden())


@pytest.mark.parametrize("damage", ["cut", "edited", "emptied", "deleted"])
def test_a_damaged_ledger_accepts_nothing(tmp_path: Path, damage: str) -> None:
    """A line taken out would make a used attempt new again: the chain is read whole, each time."""
    with open_ledger(tmp_path / "ledger", create=True) as ledger:
        consume(ledger, accept_golden())
        revoke(ledger, ATTEMPT[:-1] + "9", "another one")
        log = tmp_path / "ledger" / "job-log.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        if damage == "deleted":
            log.unlink()
        else:
            edited = lines[0].replace(b"consumed", b"consumet") + lines[1]
            log.write_bytes({"cut": lines[1], "edited": edited, "emptied": b""}[damage])
        with pytest.raises(LogChainError):
            consume(ledger, accept_golden())


def test_a_crash_between_line_and_head_counts_as_used(tmp_path: Path) -> None:
    """The line was durable: whether `accept` was printed nobody knows, so it was."""
    with open_ledger(tmp_path / "ledger", create=True) as ledger:
        consume(ledger, accept_golden())
        (tmp_path / "ledger" / "job-log.head").unlink()
        with pytest.raises(RefusalError, match="consumed"):
            consume(ledger, accept_golden())


def _loosen(path: Path) -> None:
    path.chmod(0o750)


def _lead_away(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def _replace_by_file(path: Path) -> None:
    path.rmdir()
    path.touch()


def _open_parent(path: Path) -> None:
    path.parent.chmod(0o777)


@pytest.mark.parametrize("spoil", [_loosen, _lead_away, _replace_by_file, _open_parent])
def test_a_ledger_that_others_could_replace_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """Who can put an empty ledger in its place can replay every attestation."""
    path = tmp_path / "parent" / "ledger"
    open_ledger(path, create=True).close()
    spoil(path)
    with pytest.raises(ConfigurationError, match="ledger"):
        open_ledger(path, create=True)


def test_a_ledger_that_is_not_there_is_only_made_to_consume(tmp_path: Path) -> None:
    """A mistyped path must not look like a ledger in which nothing was used."""
    done = _verify("--attempt-id", ATTEMPT, "--ledger", str(tmp_path / "none"))
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (78, "", [])


@needs("root")
def test_a_ledger_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could write it, whatever its mode."""
    path = tmp_path / "ledger"
    open_ledger(path, create=True).close()
    os.chown(path, 65534, 65534)
    with pytest.raises(ConfigurationError, match="owner 65534"):
        open_ledger(path, create=True)
