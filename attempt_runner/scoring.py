"""From what the scorer left to a receipt: the score as read, and its binding."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from attempt_runner.children import SCORE_NAME
from attempt_runner.evidence import RECEIPT
from attempt_runner.gate import refusal
from attempt_runner.plan import score_rules
from attempt_runner.role import describe
from attempt_runner.scores.read import read_score
from attempt_runner.scores.score import MAX_SCORE_BYTES
from attempt_runner.scores.served import model_evidence, parse_aliases, served_model
from bootstrap.bind_receipt import Identity, ReceiptInputError, build_receipt
from bootstrap.errors import Finding, RefusalError, ScorerUnavailableError, UnsafeFileError
from bootstrap.files import read_regular, write_new
from bootstrap.identity import command_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attempt_runner.children import Scored
    from attempt_runner.scores.score import Score
    from attempt_runner.trial import Trial
    from bootstrap.files import Directory

EX_TEMPFAIL: Final = 75  # sysexits.h: how a scorer says that it is not to be had now
EXIT_CODE: Final = "exit-code"  # the one format without a file
RECEIPTED: Final = ("pass", "fail")  # verdicts that make a receipt


def import_score(trial: Trial, scored: Scored) -> Score:
    """Read what the scorer left, by descriptor, now that everything of it is dead.

    Keeps the bytes in the attempt's directory. Raises RefusalError: `missing_receipt` for
    what is no score, `served_model` for another model's; ScorerUnavailableError for one that
    was declared to be sometimes unavailable and says so.
    """
    with scored.directory:
        files = _read_files(trial, scored)
    for number, (_, data) in enumerate(files):
        write_new(trial.directory, f"score.{number}" if number else "score", data, 0o444)
    exited = scored.exited
    if exited.timed_out or exited.code is None:
        raise no_score(f"the scorer ended by {describe(exited)}")
    rules = score_rules(trial.job, nonce=scored.nonce, attempt_id=trial.identity.attempt_id)
    score = read_score(trial.job.score_format, files, exited.code, rules)
    mismatch = served_model(
        score,
        trial.identity.model_id,
        parse_aliases(trial.job.model_alias),
        required=trial.job.require_served_model and score.verdict in RECEIPTED,
    )
    if mismatch:
        raise refusal([mismatch])
    if score.verdict not in RECEIPTED:
        raise no_score(score.cause)
    return score


def write_receipt(trial: Trial, score: Score) -> None:
    """Bind the score to the sealed copies and the frozen identity, durably."""
    identity = Identity(
        diff_sha256=trial.sealed["diff_sha256"],
        prompt_sha256=trial.sealed["prompt_sha256"],
        model_id=trial.identity.model_id,
        workspace_generation=trial.identity.generation,
        attempt_id=trial.identity.attempt_id,
    )
    try:
        receipt = build_receipt(identity, score.verdict, score.reasons, _evidence(trial, score))
    except ReceiptInputError as error:
        raise no_score(str(error)) from error
    write_new(trial.directory, RECEIPT, receipt, 0o444)
    digest = hashlib.sha256(receipt).hexdigest()
    trial.log("receipt_written", receipt_sha256=digest, verdict=score.verdict)


def no_score(cause: str) -> RefusalError:
    """Return the refusal of an attempt that has no score, and so no receipt."""
    return refusal([Finding("missing_receipt", "a complete score", cause)])


def _read_files(trial: Trial, scored: Scored) -> list[tuple[str, bytes]]:
    if trial.job.score_format == EXIT_CODE:
        return []
    names = trial.job.score_file or (SCORE_NAME,)
    if scored.exited.code == EX_TEMPFAIL and trial.job.scorer_may_be_unavailable:
        _require_any(scored.directory, names)
    return [(name, _read(scored, name)) for name in names]


def _require_any(directory: Directory, names: Iterable[str]) -> None:
    """Raise ScorerUnavailableError where nothing at all lies where a score would."""
    for name in names:
        try:
            os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError:  # such as a file where a directory of the name would be
            return
        return
    raise ScorerUnavailableError(
        "the scorer",
        expected="a score",
        found=f"exit code {EX_TEMPFAIL} and none",
        remedy="start again: a new attempt",
    )


def _read(scored: Scored, name: str) -> bytes:
    try:
        return read_regular(scored.directory, name, MAX_SCORE_BYTES)
    except UnsafeFileError as error:
        ended = describe(scored.exited)
        cause = f"the score file: {error.found}; the scorer ended by {ended}, see scorer.log"
        raise no_score(cause) from error


def _evidence(trial: Trial, score: Score) -> dict[str, object]:
    """Return what the receipt records beside the binding; nothing of it is judged later."""
    return {
        "change": trial.change,
        "isolation": dict(trial.identity.isolation),
        "score": {
            "format": trial.job.score_format,
            "sha256": score.source_sha256,
            "tests": score.counts.tests,
            "passed": score.counts.passed,
            "failed": score.counts.failed,
            "errored": score.counts.errored,
            "skipped": score.counts.skipped,
            "value": score.value,
            "threshold": score.threshold,
            "models": model_evidence(score),
        },
        "scored": trial.identity.scored,
        "scorer": command_to_json(trial.identity.scorer)["files"],
    }
