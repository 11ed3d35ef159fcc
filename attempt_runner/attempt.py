"""The attempt, from its start to its decision, in order."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from attempt_runner.change import make_tree, seal_capture
from attempt_runner.children import run_agent, run_scorer
from attempt_runner.evidence import SEALED_DIFF, load_evidence
from attempt_runner.gate import Accepted, judge_evidence, refusal
from attempt_runner.scoring import import_score, write_receipt
from attempt_runner.start import start_trial
from attempt_runner.trial import Trial, close_aborted, close_accepted, close_rejected
from bootstrap.errors import (
    ConfigurationError,
    Finding,
    InterruptedRunError,
    RefusalError,
    RunnerError,
    TamperedStateError,
    UnavailableError,
    UnsafeFileError,
)
from bootstrap.identity import NAME
from bootstrap.live import open_live
from bootstrap.prepare import clear_score_paths, not_yet_started, stop_if_asked
from bootstrap.seal import seal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.start import Task
    from bootstrap.identity import FrozenAttempt
    from bootstrap.live import LivePath
    from bootstrap.prepare import Ground
    from bootstrap.seal import Digest
    from bootstrap.signals import SignalInbox
    from bootstrap.state import Generation

ENDING: Final = ("the attempt", "to run to its end")


def run_attempt(ground: Ground, generation: Generation, task: Task, inbox: SignalInbox) -> Accepted:
    """Make one attempt under the generation in force and record its decision: steps 6 to 15.

    Returns `Accepted` once the accept is durable. Raises RefusalError once the reject is,
    UnavailableError for an attempt that was interrupted or whose scorer was not to be had,
    ConfigurationError for a command or a base that cannot be used, both once that is logged,
    and IntegrityError when our own work failed: then nothing is decided.
    """
    with not_yet_started():
        trial = start_trial(ground, generation, task, inbox)  # 6
    try:
        return _decide(trial)
    except RefusalError as refused:
        close_rejected(trial, refused)  # 15
        raise
    except (UnavailableError, ConfigurationError) as error:
        with nullcontext() if trial.has_started else not_yet_started():
            close_aborted(trial, str(error))
        raise _as_the_tier_allows(trial, error) from error
    finally:
        trial.close()


def _decide(trial: Trial) -> Accepted:
    if trial.identity.agent and trial.enclosures.agent:
        exited = run_agent(trial, trial.identity.agent, trial.enclosures.agent)  # 7, 8
        stop_if_asked(exited.interrupted, *ENDING)
    clear_score_paths(  # 9
        trial.ground,
        trial.identity.generation,
        trial.score_paths,
        attempt_id=trial.identity.attempt_id,
    )
    _seal_change(trial)  # 10
    scored = run_scorer(trial, make_tree(trial, trial.directory.path / SEALED_DIFF))  # 11
    stop_if_asked(scored.exited.interrupted, *ENDING)
    with _undisturbed(trial.inbox):
        score = import_score(trial, scored)  # 12
        write_receipt(trial, score)  # 13
        evidence = load_evidence(
            trial.ground.state,
            trial.identity.attempt_id,
            trial.ground.workspace,
            live_diff=None,
            live_prompt=None,
            claims={},
        )
        accepted = judge_evidence(evidence, "deciding", trial.requirements)  # 14
        _require_same_identity(trial, evidence.identity)
        close_accepted(trial, accepted)  # 15
    return accepted


def _require_same_identity(trial: Trial, found: FrozenAttempt) -> None:
    # Under `none` a scorer could have pointed the live paths elsewhere.
    if found != trial.identity:
        raise TamperedStateError(
            str(trial.directory.path / NAME),
            expected="what the runner wrote at the start",
            found="another identity",
        )


def _seal_change(trial: Trial) -> None:
    """Seal the diff; the prompt was sealed before the agent ran."""
    if trial.inputs.diff is None:
        captured = seal_capture(trial)
        trial.sealed["diff_sha256"] = captured.patch.sha256
        size, more = captured.patch.size, captured.as_fields()
        trial.change |= more
    else:
        digest = _seal_diff(trial, trial.inputs.diff)
        trial.sealed["diff_sha256"] = digest.sha256
        size, more = digest.size, {}
    trial.log("inputs_sealed", diff_size=size, **trial.sealed, **more)


def _seal_diff(trial: Trial, live: LivePath) -> Digest:
    """Copy the live diff by descriptor."""
    try:
        source = open_live(live, trial.ground.workspace)
    except UnsafeFileError as error:
        raise refusal([Finding("diff_file", "a regular file", error.found)]) from error
    try:
        _require_size(os.fstat(source).st_size, trial.job.max_change)
        digest = seal(source, trial.directory, SEALED_DIFF)
    except OSError as error:
        raise refusal([Finding("diff_file", "a readable file", str(error.strerror))]) from error
    finally:
        os.close(source)
    if not digest.size:
        raise refusal([Finding("diff_file", "a change", "an empty file")])
    return digest


def _require_size(size: int, limit: int) -> None:
    # A sparse file costs the agent nothing, and us the reading of all its zeros.
    if size > limit:
        raise refusal([Finding("diff_file", f"at most {limit} bytes", f"{size} bytes")])


def _as_the_tier_allows(trial: Trial, error: RunnerError) -> RunnerError:
    """Return a reject where a child could itself have sent the signal that stopped us.

    Under `none` nothing keeps the signals of an agent, or of a patch that the scorer runs,
    from the runner, and neither can buy another try.
    """
    heard = trial.enclosures.hears_signals_of(trial.identity.processes)
    if isinstance(error, InterruptedRunError) and heard:
        expected = "an attempt that ran to its end"
        return refusal([Finding("attempt_state", expected, f"aborted: {error.found}")])
    return error


@contextmanager
def _undisturbed(inbox: SignalInbox) -> Iterator[None]:
    """Let a signal wait: a score was read, so its decision must become durable."""
    inbox.hold()
    try:
        yield
    finally:
        inbox.release()
