"""How the children of an attempt are confined: tiers chosen, users held, before anything starts."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.isolate import PROMISES, Isolation, Promise, Room, User, evidence_of, unconfined
from attempt_runner.layout import (
    check_apart,
    check_guarded,
    check_scratch,
    check_single_links,
)
from bootstrap.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from contextlib import ExitStack

    from attempt_runner.plan import Inputs, Intent
    from attempt_runner.settings import Job
    from attempt_runner.users import Tenancy
    from bootstrap.freeze import FrozenCommand
    from bootstrap.state import State


@dataclass(frozen=True, slots=True)
class Enclosure:
    """One child's confinement: its tier, its room without what is made for the attempt.

    `tenant` is the user that the job holds for it, None where it shares the runner's.
    """

    isolation: Isolation
    room: Room
    tenant: Tenancy | None

    @property
    def user(self) -> User | None:
        """The user that the child runs as, None for the runner's own."""
        return self.tenant.user if self.tenant else None


@dataclass(frozen=True, slots=True)
class Enclosures:
    """The confinement of both children. `writable_inputs` is what `none` left in their reach."""

    agent: Enclosure | None
    scorer: Enclosure
    writable_inputs: tuple[Path, ...]

    def hears_signals_of(self, started: Container[str]) -> bool:
        """Tell whether the runner can be signalled by a child among those that were started."""
        children = {"agent": self.agent, "scorer": self.scorer}
        return any(
            role in started and child and not child.isolation.promises.get("signals", False)
            for role, child in children.items()
        )

    def as_evidence(self) -> dict[str, object]:
        """Return what the attempt records, by the names that `--require` knows."""
        agent = self.agent.isolation if self.agent else None
        found: dict[str, object] = dict(evidence_of(agent, self.scorer.isolation))
        if self.writable_inputs:
            found["writable_inputs"] = [
                os.fsencode(path).decode("ascii", "backslashreplace")
                for path in self.writable_inputs
            ]
        return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tier is probed: the state's root, the scratch directory, the environment."""

    root: Path
    scratch: Path
    environ: Mapping[str, str]


def enclose_children(
    intent: Intent, inputs: Inputs, state: State, environ: Mapping[str, str], held: ExitStack
) -> Enclosures:
    """Choose and probe the tier of each child, and hold its user until `held` is closed.

    Starts canaries from this thread, which must be the main one; nothing of the agent's runs
    yet. Raises IsolationError or ConfigurationError (78), LockHeldError (75) for a user in
    use, IntegrityError (77) for what an earlier job left of one.
    """
    job = intent.job
    root = state.directory.path.parent
    check_single_links(state.directory.path)
    place = _Place(root, Path(os.path.realpath(intent.scratch)), environ)
    agent = None
    if intent.agent:
        room = _room(job, root, intent.agent, job.agent_network, (intent.workspace,))
        tenant = _hold(held, job, job.agent_user, (intent.workspace, *room.writable), "agent")
        agent = _enclose(job, room, tenant, place)
    room = _room(job, root, inputs.scorer, job.scorer_network, ())
    tenant = _hold(held, job, job.scorer_user, (intent.workspace, *room.writable), "scorer")
    scorer = _enclose(job, room, tenant, place, like=agent)
    return Enclosures(agent, scorer, _check_reach(intent, inputs, root, agent, scorer))


def _room(
    job: Job, root: Path, command: FrozenCommand, network: str, writable: tuple[Path, ...]
) -> Room:
    allowed = tuple(Path(os.path.realpath(path)) for path in job.allow_write)
    return Room(
        writable=(*writable, *allowed),
        readable=tuple(Path(os.path.realpath(path)) for path in command.files),
        hidden=(root,),
        devices=tuple(Path(os.path.realpath(path)) for path in job.allow_device),
        network=network == "on",
    )


def _hold(
    held: ExitStack, job: Job, named: str | None, keep: Iterable[Path], role: str
) -> Tenancy | None:
    if named and job.user_pool:
        raise UsageError(
            f"--{role}-user", expected="it or --user-pool", found="both", remedy="leave one out"
        )
    if not named and not job.user_pool:
        return None
    from attempt_runner.users import hold_user, parse_pool, resolve_user  # noqa: PLC0415 - rare

    candidates = [resolve_user(named)] if named else parse_pool(job.user_pool or "")
    return held.enter_context(hold_user(candidates, keep))


def _enclose(
    job: Job, room: Room, tenant: Tenancy | None, place: _Place, like: Enclosure | None = None
) -> Enclosure:
    user = tenant.user if tenant else None
    room = replace(room, user=user)
    # One probe serves both children where nothing that a tier depends on differs.
    if like and like.user == user and like.room.network == room.network:
        return Enclosure(like.isolation, room, tenant)
    return Enclosure(_choose(job, room, place), room, tenant)


def _choose(job: Job, room: Room, place: _Place) -> Isolation:
    if job.isolation == "none":
        return unconfined()
    from attempt_runner.probe import choose  # noqa: PLC0415 - canaries, where there is a tier
    from attempt_runner.sockets import control_sockets  # noqa: PLC0415 - as above
    from attempt_runner.tryout import Ground  # noqa: PLC0415 - as above

    ground = Ground(
        state_root=place.root,
        scratch=place.scratch,
        sockets=control_sockets(place.environ, job.allow_socket),
    )
    return choose(job.isolation, room, ground, _required(job))


def _required(job: Job) -> frozenset[Promise]:
    demanded = {word.partition("=")[0] for word in job.require}
    return frozenset(promise for promise in PROMISES if promise in demanded)


def _check_reach(
    intent: Intent,
    inputs: Inputs,
    root: Path,
    agent: Enclosure | None,
    scorer: Enclosure,
) -> tuple[Path, ...]:
    """Refuse what judges a child in the reach of one; under `none`, return it."""
    if agent and agent.user and agent.user == scorer.user:
        raise ConfigurationError(
            "--scorer-user",
            expected="another user than the agent's",
            found=f"uid {agent.user.uid} for both",
            remedy="name two users, so that what the agent leaves cannot touch the score",
        )
    judged = _judged(intent, inputs)
    found: list[Path] = []
    for child in filter(None, (agent, scorer)):
        check_apart(root, child.room.writable)
        check_scratch(intent.scratch, child.room.writable)
        tier = child.isolation.tier
        found.extend(check_guarded(tier, judged, child.room.writable, child.user))
    return tuple(dict.fromkeys(found))


def _judged(intent: Intent, inputs: Inputs) -> tuple[Path, ...]:
    """Return what a verdict hangs on: no child may write it."""
    job = intent.job
    single = (job.config_path, job.scorer_home_from, intent.base.path if intent.base else None)
    return (
        inputs.prompt.path,
        *map(Path, inputs.scorer.files),
        *job.path_add,
        *(path for path in single if path is not None),
    )
