from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.signing import KINDS, Signed, make_signed, run, statement_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """One accepted attempt for all tests here that leave it as it is."""
    return make_signed(tmp_path_factory.mktemp("signed"), KINDS)


@pytest.fixture(scope="module")
def attestation(signed: Signed) -> Path:
    """Its attestation, as a default call writes it."""
    return signed.attest(signed.job.directory / "attestation.json")


@pytest.mark.parametrize("kind", KINDS)
def test_an_accepted_attempt_is_attested_and_verified_elsewhere(
    signed: Signed, kind: str, tmp_path: Path
) -> None:
    """Diff, prompt, model, id and a public key are all that the other host needs."""
    file = signed.attest(tmp_path / "a.json", kind)
    verified = signed.verify(file, "--attempt-id", signed.attempt, "--max-age=1h", kind=kind)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "accept\n", "")
    other = KINDS[kind == KINDS[0]]
    refused = signed.verify(file, "--attempt-id", signed.attempt, kind=other)
    assert (refused.returncode, refused.stdout) == (1, "reject: attestation\n")


def test_every_value_that_differs_is_named(signed: Signed, attestation: Path) -> None:
    """The reject line of another host is the gate's own."""
    refused = signed.verify(
        attestation,
        *("--workspace-gen", "gen-of-another", "--require", "scored=tree", "--require", "reads"),
        diff=str(signed.job.prompt),
        model="model-b",
    )
    assert refused.returncode == 1
    assert refused.stdout == "reject: diff_sha256,model_id,workspace_generation,isolation\n"


@pytest.mark.parametrize(
    ("flag", "kind", "expected"),
    [
        ("diff", "absent", (1, "reject: diff_file\n")),
        ("diff", "fifo", (1, "reject: diff_file\n")),
        ("diff", "link", (1, "reject: diff_file\n")),
        ("diff", "empty", (1, "reject: diff_file\n")),
        ("prompt", "directory", (1, "reject: prompt_file\n")),
        ("public_key", "absent", (78, "")),
        ("public_key", "fifo", (78, "")),
        ("public_key", "empty", (78, "")),
    ],
)
def test_an_input_that_is_no_file_never_accepts(
    signed: Signed,
    attestation: Path,
    flag: str,
    kind: str,
    expected: tuple[int, str],
    tmp_path: Path,
) -> None:
    """A FIFO does not hang the gate; a missing key is the configuration's fault."""
    path = tmp_path / "input"
    make: dict[str, Callable[[], object]] = {
        "absent": lambda: None,
        "directory": path.mkdir,
        "empty": path.touch,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(signed.job.diff),
    }
    make[kind]()
    done = signed.verify(attestation, "--attempt-id", signed.attempt, **{flag: str(path)})
    assert (done.returncode, done.stdout) == expected


def test_a_missing_attestation_is_refused(signed: Signed, tmp_path: Path) -> None:
    """No file is no attestation, in one line."""
    done = signed.verify(tmp_path / "none.json", "--attempt-id", signed.attempt)
    assert (done.returncode, done.stdout) == (1, "reject: attestation\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ("--require", "scored=tree", "--max-age", "1h"),
        ("--consume",),
        ("--ledger", "somewhere"),
        ("--workspace-gen", ""),
        ("--attempt-id", "two words"),
        ("--attempt-id", "x", "--max-age", "0s"),
        ("--attempt-id", "x", "--require", "=tree"),
    ],
)
def test_flags_that_say_too_little_are_refused(signed: Signed, flags: tuple[str, ...]) -> None:
    """Without generation, attempt or ledger an older attestation of the same bytes would do."""
    done = signed.verify(signed.job.prompt, *flags)
    assert (done.returncode, done.stdout) == (2, "")


def test_the_statement_says_what_policies_ask(signed: Signed, attestation: Path) -> None:
    """Subject, identity, isolation, cleanup, scorer, log head and receipt are all there."""
    statement = statement_of(attestation)
    predicate = statement["predicate"]
    (subject,) = statement["subject"]
    receipt = (signed.job.attempts[0] / "receipt.json").read_text()
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert subject == {
        "name": "diff",
        "digest": {"sha256": json.loads(receipt)["diff_sha256"]},
    }
    assert predicate["receipt"] == receipt
    assert predicate["attempt"]["model_id"] == "model-a"
    assert predicate["attempt"]["isolation"]["scorer"] == "not isolated"
    assert predicate["attempt"]["scorer"]["files"] == json.loads(receipt)["evidence"]["scorer"]
    assert [item["after"] for item in predicate["cleanup"]] == ["scorer"]
    head = json.loads((signed.job.state / "job-log.head").read_text())
    assert predicate["log"]["head"] == head
    assert len(predicate["log"]["lines"]) == head["seq"]
    assert predicate["config_sha256"] is None


def test_a_test_result_is_written_beside(signed: Signed, tmp_path: Path) -> None:
    """The second statement is in-toto's own, about the same diff, and no attestation of ours."""
    file = signed.attest(tmp_path / "a.json", KINDS[0], "--test-result", "--bundle")
    second = tmp_path / "a.test-result.json"
    statement = statement_of(second)
    assert statement["subject"] == statement_of(file)["subject"]
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["predicate"]["result"] == "PASSED"
    assert len(statement["predicate"]["configuration"]) == 2
    assert signed.verify(file, "--attempt-id", signed.attempt).returncode == 0
    refused = signed.verify(second, "--attempt-id", signed.attempt)
    assert (refused.returncode, refused.stdout) == (1, "reject: attestation\n")


def test_the_attestation_may_not_lie_in_the_workspace(signed: Signed) -> None:
    """An agent that comes back could take it away, or lead the write elsewhere."""
    out = signed.job.workspace / "a.json"
    words = (signed.attempt, "--key", str(signed.key(KINDS[0])), "--out", str(out))
    done = signed.job.command("attest", *words)
    assert (done.returncode, done.stdout, out.exists()) == (78, "", False)


def test_only_a_file_is_replaced(signed: Signed, tmp_path: Path) -> None:
    """A rename over /dev/stdout, a link, would take it from the whole machine."""
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    words = (signed.attempt, "--key", str(signed.key(KINDS[0])))
    done = signed.job.command("attest", *words, "--out", str(tmp_path / "stdout"))
    assert (done.returncode, done.stdout) == (78, "")
    emitted = signed.job.command("gate", signed.attempt, "--emit", str(tmp_path / "stdout"))
    assert (emitted.returncode, emitted.stdout) == (78, "")
    assert (tmp_path / "stdout").is_symlink()


def test_what_the_gate_rejects_is_not_attested(tmp_path: Path) -> None:
    """Changed after its accept, rejected, revoked, unknown: nothing is signed."""
    signed = make_signed(tmp_path)
    job, out = signed.job, tmp_path / "a.json"
    words = ("--key", str(signed.key(KINDS[0])), "--out", str(out))
    job.diff.write_text("another\n")
    changed = job.command("attest", signed.attempt, *words)
    assert (changed.returncode, changed.stdout) == (1, "reject: diff_sha256\n")
    unknown = job.command("attest", "att-20261130T214457Z-" + "0" * 32, *words)
    assert (unknown.returncode, unknown.stdout) == (1, "reject: missing_receipt\n")
    failed = job.run("--base", str(job.base), scorer=job.scorer("fail"))
    assert failed.returncode == 1
    rejected = job.command("attest", job.attempts[-1].name, *words)
    assert rejected.returncode == 1
    assert rejected.stdout.startswith("reject: ")
    assert not out.exists()


def test_a_revoked_attempt_is_neither_gated_nor_attested(tmp_path: Path) -> None:
    """`revoke` is logged with its reason, and final."""
    signed = make_signed(tmp_path)
    job, out = signed.job, tmp_path / "a.json"
    early = signed.attest(tmp_path / "early.json")
    reason = "the scorer was wrong\n::error::"
    revoked = job.command("revoke", signed.attempt, "--reason", reason)
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {signed.attempt}\n")
    assert job.log[-1] | {"event": "revoked", "reason": reason} == job.log[-1]
    gated = job.command("gate", signed.attempt)
    assert (gated.returncode, gated.stdout) == (1, "reject: attempt_state\n")
    words = ("--key", str(signed.key(KINDS[0])), "--out", str(out))
    attested = job.command("attest", signed.attempt, *words)
    assert (attested.returncode, attested.stdout, out.exists()) == (
        1,
        "reject: attempt_state\n",
        False,
    )
    assert signed.verify(early, "--attempt-id", signed.attempt).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("att-20261130T214457Z-" + "0" * 32, "--reason", "why"),
        ("att-20261130T214457Z-" + "0" * 32, "--reason", " ", "--ledger", "l"),
        ("../../etc", "--reason", "why", "--ledger", "l"),
    ],
)
def test_a_revocation_that_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    """It names where, which attempt, and why."""
    assert run("revoke", *words).returncode == 2
