"""The models of a job, in order: the next one as a new attempt, never after a verdict.

What moves on is decided once, before anything starts, and only from what the runner itself
saw and logged. The job's prompt, scorer, model list and starting point are those of its
start: no later attempt sees what an earlier one left.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from attempt_runner.attempt import run_attempt
from attempt_runner.change import baseline_of, baseline_step, return_to_baseline
from attempt_runner.course import AGENT, TIMEOUT, UNAVAILABLE
from attempt_runner.enclosure import enclose_children
from attempt_runner.plan import plan_of, require_inputs
from attempt_runner.schedulers import scheduler_claims
from attempt_runner.start import Task
from bootstrap.errors import (
    IntegrityError,
    InterruptedRunError,
    RefusalError,
    RunnerError,
    ScorerUnavailableError,
    UnavailableError,
)
from bootstrap.files import open_directory_beneath, open_regular
from bootstrap.joblog import read_segment
from bootstrap.prepare import (
    FROZEN_DIRECTORY,
    FROZEN_PROMPT,
    hold_workspace,
    not_yet_started,
    prepare,
    stop_if_asked,
)
from bootstrap.seal import digest_fd
from bootstrap.state import read_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from attempt_runner.course import Course
    from attempt_runner.enclosure import Enclosures
    from attempt_runner.gate import Accepted
    from attempt_runner.plan import Caller, Inputs
    from bootstrap.joblog import Record
    from bootstrap.prepare import Ground
    from bootstrap.signals import SignalInbox
    from bootstrap.state import Generation

STARTED: Final = "attempt_started"
SCORED: Final = "scorer_exited"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all attempts of one job share, held until its end."""

    ground: Ground
    course: Course
    inputs: Inputs
    enclosures: Enclosures
    environ: Mapping[str, str]
    inbox: SignalInbox


@dataclass(frozen=True, slots=True)
class Earlier:
    """An attempt that gave way to the next: its id, what it froze, and why."""

    attempt_id: str
    generation: Generation
    cause: str

    def as_fields(self) -> dict[str, str]:
        """Return what the log says of it, in the record that links the two."""
        return {
            "cause": self.cause,
            "from_attempt_id": self.attempt_id,
            "from_generation": self.generation.generation,
            "from_model_id": self.generation.frozen.model_id,
        }


def run_job(
    course: Course,
    who: Caller,
    inbox: SignalInbox,
    watch: Callable[[Ground], AbstractContextManager[None]],
) -> Accepted:
    """Bootstrap and attempt, model after model, until one attempt is decided.

    Returns `Accepted`, or raises what the last attempt raised: its refusal, or
    ScorerUnavailableError (75) where the last model was unavailable too. The workspace is
    locked from the first to the last, and `watch` is entered meanwhile.
    """
    intent = course.intent
    inputs = require_inputs(intent, intent.scorer)
    with ExitStack() as held:
        with not_yet_started():
            ground = held.enter_context(
                hold_workspace(intent.workspace, intent.root, wait=intent.job.wait, inbox=inbox)
            )
            held.enter_context(watch(ground))
            enclosures = enclose_children(intent, inputs, ground.state, who.environ, held)
        return _try_models(Setting(ground, course, inputs, enclosures, who.environ, inbox))


def _try_models(setting: Setting) -> Accepted:
    *others, last = setting.course.models
    earlier: Earlier | None = None
    for model in others:
        try:
            return _try(setting, model, earlier)
        except RunnerError as error:
            earlier = _give_way(setting, error)
    return _try(setting, last, earlier)


def _try(setting: Setting, model: str, earlier: Earlier | None) -> Accepted:
    if earlier is None:
        with not_yet_started():
            generation = _bootstrap(setting, model, None)
        return run_attempt(setting.ground, generation, _task(setting, None), setting.inbox)
    stop_if_asked(setting.inbox.pending, "the next model", "to be tried")
    with _not_bought():
        generation = _bootstrap(setting, model, earlier)
        return run_attempt(setting.ground, generation, _task(setting, earlier), setting.inbox)


def _bootstrap(setting: Setting, model: str, earlier: Earlier | None) -> Generation:
    ground, intent = setting.ground, setting.course.intent
    record = baseline_step(ground, intent, always=len(setting.course.models) > 1)

    def baseline() -> Mapping[str, object]:
        if earlier:
            _require_same_prompt(ground, earlier.generation)
        fields = return_to_baseline(ground, intent) if earlier else record()
        return {**fields, **scheduler_claims(setting.environ)}

    return prepare(ground, plan_of(intent, model), baseline)


def _task(setting: Setting, earlier: Earlier | None) -> Task:
    return Task(
        setting.course.intent,
        setting.inputs,
        setting.enclosures,
        baseline_of(setting.ground.state, setting.course.intent.job),
        setting.environ,
        earlier.as_fields() if earlier else None,
    )


def _give_way(setting: Setting, error: RunnerError) -> Earlier:
    """Return the attempt that `error` ended as one that gives way, or raise the error."""
    state = setting.ground.state
    generation = read_generation(state)
    segment = read_segment(state.directory, None)
    started = [str(item.fields["attempt_id"]) for item in segment if item.event == STARTED]
    cause = _cause_of(error, segment)
    if cause not in setting.course.causes or generation is None or len(started) != 1:
        raise error
    return Earlier(started[0], generation, cause)


def _cause_of(error: RunnerError, segment: Iterable[Record]) -> str:
    """Return which cause ended an attempt; a verdict and whatever else is final are none."""
    if isinstance(error, ScorerUnavailableError):
        return UNAVAILABLE
    fields = error.fields if isinstance(error, RefusalError) else ()
    if fields == ("agent",):
        return AGENT
    timed_out = any(item.event == SCORED and item.fields["timed_out"] for item in segment)
    return TIMEOUT if timed_out and fields == ("missing_receipt",) else ""


def _require_same_prompt(ground: Ground, first: Generation) -> None:
    """Refuse a prompt that changed during the job: an agent may have written the next one's."""
    with open_directory_beneath(ground.state.directory, FROZEN_DIRECTORY) as frozen:
        opened = open_regular(frozen, FROZEN_PROMPT)
    try:
        found = digest_fd(opened).sha256
    finally:
        os.close(opened)
    if found != first.frozen.prompt_sha256:
        raise IntegrityError(
            "the prompt",
            expected=f"sha256 {first.frozen.prompt_sha256}, as at the start of the job",
            found=found,
            remedy="keep the prompt where no agent can write it",
        )


@contextmanager
def _not_bought() -> Iterator[None]:
    """Refuse to start again for what an earlier attempt may have caused, such as a full disk."""
    try:
        yield
    except (ScorerUnavailableError, InterruptedRunError):
        raise
    except UnavailableError as error:
        raise IntegrityError(
            error.what, expected=error.expected, found=error.found, remedy="hold the machine"
        ) from error
