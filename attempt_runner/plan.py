"""From a Job to what bootstrap and attempt are asked: paths placed, commands frozen.

Contradictions are refused here, before anything is locked, wiped or started.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attempt_runner.environment import check_passed
from attempt_runner.resolve import split_command
from attempt_runner.scores.read import check_rules
from attempt_runner.scores.score import ScoreRules
from attempt_runner.scores.thresholds import parse_threshold
from bootstrap.errors import ConfigurationError, UsageError, shown
from bootstrap.freeze import FrozenCommand, freeze_command, search_path
from bootstrap.live import LivePath, place
from bootstrap.place import STATE_DIR_VARIABLE, default_root
from bootstrap.prepare import Plan, ScorePaths, StateRoot
from bootstrap.scorepath import check_score_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attempt_runner.base import Base
    from attempt_runner.settings import Job


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the working directory, environment and user id of the runner's own process."""

    cwd: Path
    environ: Mapping[str, str]
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A job with every path placed and every command frozen. Trusted values only."""

    job: Job
    workspace: Path
    root: StateRoot
    scratch: Path
    base: Base | None
    prompt: LivePath | None
    diff: LivePath | None
    agent: FrozenCommand | None
    scorer: FrozenCommand | None
    score_paths: ScorePaths


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an attempt cannot do without; no diff where the runner captures the change."""

    prompt: LivePath
    diff: LivePath | None
    base: Base | None
    scorer: FrozenCommand


def intend(job: Job, caller: Caller) -> Intent:
    """Place the paths and freeze the commands of a job.

    Raises UsageError (2) or ConfigurationError (78) for what contradicts itself or names
    what is not there.
    """
    workspace = Path(os.path.realpath(job.workspace))
    _check_words(job)
    _check_capture(job)
    base = _read_base(job, caller)
    _check_apart(base, workspace)
    check_rules(job.score_format, score_rules(job, nonce=None, attempt_id=None))
    _check_score_files(job)
    _check_switches(job)
    check_passed("agent-pass-env", job.agent_pass_env)
    check_passed("scorer-pass-env", job.scorer_pass_env)
    return Intent(
        job=job,
        workspace=workspace,
        root=state_root(job.state_dir, caller),
        scratch=job.scratch_dir or Path(caller.environ.get("TMPDIR") or "/tmp"),  # noqa: S108 - the system's own default
        base=base,
        prompt=place(job.prompt, job.workspace, workspace) if job.prompt else None,
        diff=place(job.diff, job.workspace, workspace) if job.diff else None,
        agent=_freeze(job, split_command("agent", job.agent), caller) if job.agent else None,
        scorer=_freeze(job, job.scorer, caller, in_tree=job.base is not None or job.capture)
        if job.scorer
        else None,
        score_paths=ScorePaths(tuple(map(check_score_path, job.score_path)), job.score_mount),
    )


def plan_of(intent: Intent, model_id: str) -> Plan:
    """Return what bootstrap is asked for one model of the job."""
    job = intent.job
    files = [Path(path) for path in (intent.scorer.files if intent.scorer else ())]
    placed = [place(path, job.workspace, intent.workspace) for path in files]
    guarded = [live.inside for live in (intent.prompt, intent.diff, *placed) if live]
    return Plan(
        model_id=model_id,
        score_paths=intent.score_paths,
        guarded=tuple(path for path in guarded if path is not None),
        prompt=intent.prompt,
        diff=intent.diff,
        scorer=intent.scorer,
        config_sha256=job.config_sha256,
        starts_agent=intent.agent is not None,
        strict=job.strict,
    )


def state_root(named: Path | None, caller: Caller) -> StateRoot:
    """Return where the state lies: as the operator says, else the caller's own default."""
    if named is not None:
        return StateRoot(named, named=True)
    default = default_root(caller.environ, caller.uid)
    return StateRoot(default, named=bool(caller.environ.get(STATE_DIR_VARIABLE)))


def parse_requirements(words: Iterable[str]) -> dict[str, str | None]:
    """Split each `NAME=VALUE`, or `NAME` alone, which demands that it be true."""
    requirements: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or (equals and not value):
            raise UsageError(
                "--require", expected="NAME or NAME=VALUE", found=word, remedy="correct it"
            )
        requirements[name] = value if equals else None
    return requirements


def score_rules(job: Job, *, nonce: str | None, attempt_id: str | None) -> ScoreRules:
    """Return what a job demands of its score; nonce and attempt id are those of one scoring."""
    return ScoreRules(
        nonce=nonce,
        attempt_id=attempt_id,
        min_tests=job.min_tests,
        thresholds=tuple(map(parse_threshold, job.threshold)),
    )


def require_inputs(intent: Intent, scorer: FrozenCommand | None) -> Inputs:
    """Return what an attempt cannot do without, or raise UsageError (2) for what is missing."""
    if intent.prompt is None:
        raise _missing("prompt", "--prompt FILE, also where bootstrap was given it")
    if intent.diff is None and not intent.job.capture:
        raise _missing("diff", "--diff FILE or --capture, also where bootstrap was given it")
    if intent.diff is not None and intent.job.capture:
        raise UsageError("--diff", expected="it or --capture", found="both", remedy="leave one out")
    if scorer is None:
        raise _missing("scorer", "the scorer's command after --")
    return Inputs(intent.prompt, intent.diff, intent.base, scorer)


def _missing(name: str, example: str) -> UsageError:
    return UsageError(name, expected="one", found="none", remedy=f"give {example}")


def _freeze(
    job: Job, argv: tuple[str, ...], caller: Caller, *, in_tree: bool = True
) -> FrozenCommand:
    # Where the command runs in a tree, or in the workspace, a relative argument is meant there.
    return freeze_command(
        argv,
        path=search_path(job.path_add),
        cwd=caller.cwd,
        arguments_from_cwd=not in_tree,
    )


def _check_capture(job: Job) -> None:
    if (job.protect or job.restore_protected) and not job.capture:
        raise _contradiction("--protect", "--capture", "give --capture, or leave it out")
    if job.capture or job.base:
        from attempt_runner.git import find_git  # noqa: PLC0415 - where it is used

        find_git()  # a missing git is told before an agent has worked for an hour


def _check_words(job: Job) -> None:
    words = " ".join(job.scorer)
    if "{tree}" in words and job.base is None and not job.capture:
        remedy = "give --base DIR, or --capture"
        raise _contradiction("{tree} in the scorer", "a starting point", remedy)
    if "{workspace}" in words and not job.scorer_reads_workspace:
        raise _contradiction(
            "{workspace} in the scorer",
            "leave to read what was not hashed",
            "score {tree}, or give --scorer-reads-workspace",
        )


def _read_base(job: Job, caller: Caller) -> Base | None:
    if job.base is None:
        return None
    from attempt_runner.base import parse_base  # noqa: PLC0415 - git and all that it needs

    return parse_base(str(job.base), caller.cwd)


def _check_apart(base: Base | None, workspace: Path) -> None:
    if base is None:
        return
    place = Path(os.path.realpath(base.path))
    # A commit's repository may hold its own work trees; what is copied as it lies may not.
    if place.is_relative_to(workspace) or (not base.commit and workspace.is_relative_to(place)):
        raise ConfigurationError(
            f"base {base.path}",
            expected="a directory apart from the workspace",
            found="one that the agent can write",
            remedy="keep a trusted clone elsewhere and name it with --base",
        )


def _check_switches(job: Job) -> None:
    for name, given in (("agent", job.agent_network), ("scorer", job.scorer_network)):
        if given not in ("on", "off"):
            raise UsageError(
                f"--{name}-network", expected="on or off", found=shown(given), remedy="correct it"
            )


def _check_score_files(job: Job) -> None:
    for name in job.score_file:
        if name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise UsageError(
                "score-file",
                expected="a path within the score directory",
                found=shown(name),
                remedy="name it as the scorer writes it below {score}",
            )


def _contradiction(what: str, expected: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(what, expected=expected, found="none", remedy=remedy)
