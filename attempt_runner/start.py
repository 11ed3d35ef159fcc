"""Start an attempt: its id, its exclusive directory, its frozen identity, its first record."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attempt_runner.evidence import SEALED_PROMPT
from attempt_runner.exchange import make_exchange, remove_exchange
from attempt_runner.plan import parse_requirements
from attempt_runner.trial import Trial
from bootstrap.errors import TamperedStateError
from bootstrap.files import Directory, open_directory_beneath, open_regular
from bootstrap.identity import AttemptIdentity, write_identity
from bootstrap.prepare import FROZEN_DIRECTORY, FROZEN_PROMPT, seal_prompt
from bootstrap.proctable import identify
from bootstrap.seal import seal
from bootstrap.state import boot_id, create_attempt, mint_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.baseline import Baseline
    from attempt_runner.enclosure import Enclosures
    from attempt_runner.plan import Inputs, Intent
    from attempt_runner.settings import Job
    from bootstrap.prepare import Ground
    from bootstrap.signals import SignalInbox
    from bootstrap.state import Generation


@dataclass(frozen=True, slots=True)
class Task:
    """What one attempt is asked to do: the job, its inputs, its walls, the caller's environment.

    `follows` says which attempt of the same job this one follows, and why.
    """

    intent: Intent
    inputs: Inputs
    enclosures: Enclosures
    baseline: Baseline | None
    environ: Mapping[str, str]
    follows: Mapping[str, str] | None = None


def start_trial(ground: Ground, generation: Generation, task: Task, inbox: SignalInbox) -> Trial:
    """Mint the attempt's id, create its directory exclusively, freeze and log who it is: step 6.

    Raises ConfigurationError, StorageError, TamperedStateError, or RefusalError where the
    generation has had its decided attempt or froze other inputs.
    """
    intent, inputs = task.intent, task.inputs
    with ExitStack() as undo:
        exchange = make_exchange(intent.scratch)
        undo.callback(remove_exchange, exchange)
        attempt_id = mint_id("att", datetime.now(UTC))
        directory = undo.enter_context(create_attempt(ground.state, attempt_id))
        identity = _identity(ground, generation, task, attempt_id, exchange)
        trial = Trial(
            ground=ground,
            job=intent.job,
            inputs=inputs,
            inbox=inbox,
            environ=task.environ,
            directory=directory,
            exchange=exchange,
            identity=identity,
            score_paths=intent.score_paths,
            requirements=parse_requirements(intent.job.require),
            enclosures=task.enclosures,
            change=task.baseline.as_fields() if task.baseline else {},
            sealed={"prompt_sha256": _seal_prompt(ground, generation, inputs, directory)},
        )
        write_identity(directory, identity)
        trial.log("attempt_started", scored=identity.scored)
        if task.follows:
            trial.log("failed_over", **task.follows)
        undo.pop_all()  # from here on the trial owns both
    return trial


def _identity(
    ground: Ground,
    generation: Generation,
    task: Task,
    attempt_id: str,
    exchange: Directory,
) -> AttemptIdentity:
    intent, inputs = task.intent, task.inputs
    return AttemptIdentity(
        attempt_id=attempt_id,
        generation=generation.generation,
        model_id=generation.frozen.model_id,
        workspace=ground.state.workspace,
        workspace_device=generation.workspace_device,
        workspace_inode=generation.workspace_inode,
        diff=inputs.diff,
        prompt=inputs.prompt,
        agent=intent.agent,
        scorer=inputs.scorer,
        score_format=intent.job.score_format,
        scored=_scored(intent.job),
        isolation=task.enclosures.as_evidence(),
        baseline=task.baseline.kind if task.baseline else None,
        marker=secrets.token_hex(16),
        exchange=exchange.path,
        boot_id=boot_id(),
        processes={"runner": identify(os.getpid())},
    )


def _scored(job: Job) -> str:
    if job.scorer_reads_workspace:
        return "workspace"
    return "tree" if job.base or job.capture else "diff"


def _seal_prompt(
    ground: Ground, generation: Generation, inputs: Inputs, directory: Directory
) -> str:
    """Copy the prompt that bootstrap froze, or seal it now where bootstrap was given none."""
    if generation.frozen.prompt_sha256 is None:
        return seal_prompt(inputs.prompt, ground.workspace, directory)
    with open_directory_beneath(ground.state.directory, FROZEN_DIRECTORY) as frozen:
        source = open_regular(frozen, FROZEN_PROMPT)
    try:
        digest = seal(source, directory, SEALED_PROMPT)
    finally:
        os.close(source)
    if digest.sha256 != generation.frozen.prompt_sha256:
        raise TamperedStateError(
            str(ground.state.directory.path / FROZEN_DIRECTORY / FROZEN_PROMPT),
            expected=f"sha256 {generation.frozen.prompt_sha256}",
            found=digest.sha256,
        )
    return digest.sha256
