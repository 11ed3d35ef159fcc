"""Take up a generation that bootstrap put in force: what it froze is compared, not frozen again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attempt_runner.gate import compare_claims, refusal
from attempt_runner.plan import Inputs, Intent, plan_of, require_inputs
from bootstrap.errors import ConfigurationError, Finding, shown
from bootstrap.files import AgentPath
from bootstrap.freeze import FrozenCommand, changed_files
from bootstrap.identity import command_from_json
from bootstrap.joblog import read_segment
from bootstrap.live import path_from_json
from bootstrap.prepare import ScorePaths, check_overlaps, clear_score_paths, stale_inputs
from bootstrap.state import Generation, read_generation, require_in_force
from bootstrap.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bootstrap.joblog import Record
    from bootstrap.prepare import Ground

DECIDED = frozenset({"accepted", "rejected"})


@dataclass(frozen=True, slots=True)
class Resumed:
    """A generation taken up again, the intent with its score paths, and the inputs."""

    generation: Generation
    intent: Intent
    inputs: Inputs


def resume(ground: Ground, intent: Intent, claims: Mapping[str, str]) -> Resumed:
    """Return the generation in force, and what bootstrap froze under it.

    Closes what an earlier run left open, and wipes once more, now that an agent's diff may be
    known, which bootstrap was not told of. Raises ConfigurationError (78) where there is no
    generation in force for this machine, boot and workspace, or job.toml has changed since;
    RefusalError, recorded, where it has had its decided attempt, where the environment claims
    another model or generation, or where the scorer is not the frozen one.
    """
    generation = require_in_force(read_generation(ground.state), ground.workspace)
    inputs = require_inputs(intent, _frozen_scorer(generation) or intent.scorer)
    segment = read_segment(ground.state.directory, generation.generation)
    score_paths = _wiped_paths(segment)
    intent = replace(intent, score_paths=score_paths)
    plan = plan_of(intent, generation.frozen.model_id)
    check_overlaps(score_paths.paths, plan.guarded)
    sweep(ground.state, ground.log, ground.workspace, score_paths.paths, strict=intent.job.strict)
    _require_same_config(generation, intent)
    findings = [
        *_decided(segment, generation.generation),
        *compare_claims(claims, _claimable(generation)),
        *_scorer_findings(generation, intent),
    ]
    if findings:
        refused = refusal(findings)
        ground.log.append(
            "rejected",
            generation=generation.generation,
            model_id=generation.frozen.model_id,
            fields=list(refused.fields),
        )
        raise refused
    if stale := stale_inputs(plan):
        clear_score_paths(ground, generation.generation, score_paths, stale=stale)
    return Resumed(generation, intent, inputs)


def _claimable(generation: Generation) -> dict[str, str]:
    return {
        "model_id": generation.frozen.model_id,
        "workspace_generation": generation.generation,
    }


def _wiped_paths(segment: tuple[Record, ...]) -> ScorePaths:
    """Return the score paths as the bootstrap of the segment wiped them."""
    fields: Any = next(item.fields for item in segment if item.event == "score_paths_wiped")
    paths = tuple(AgentPath(path_from_json(text)) for text in fields["paths"])
    return ScorePaths(paths, fields["empty_mounts"])


def _require_same_config(generation: Generation, intent: Intent) -> None:
    frozen, given = generation.frozen.config_sha256, intent.job.config_sha256
    if frozen is not None and given != frozen:
        raise ConfigurationError(
            "--config",
            expected=f"the file that bootstrap froze (sha256 {frozen})",
            found=f"sha256 {given}" if given else "none",
            remedy="give the same job.toml, or bootstrap again",
        )


def _decided(segment: tuple[Record, ...], generation: str) -> list[Finding]:
    # The segment may hold what a gate recorded of an attempt of an earlier generation.
    decided = [
        item.fields.get("attempt_id") or "an attempt refused before its start"
        for item in segment
        if item.event in DECIDED and item.fields.get("generation") == generation
    ]
    if not decided:
        return []
    expected = "a generation without a decided attempt"
    return [Finding("attempt_state", expected, str(decided[0]))]


def _scorer_findings(generation: Generation, intent: Intent) -> list[Finding]:
    frozen = _frozen_scorer(generation)
    if frozen is None:
        return []
    if intent.scorer is not None and intent.scorer.argv != frozen.argv:
        expected, found = (" ".join(item.argv) for item in (frozen, intent.scorer))
        return [Finding("scorer", shown(expected), shown(found))]
    return list(changed_files(frozen))


def _frozen_scorer(generation: Generation) -> FrozenCommand | None:
    scorer = generation.frozen.scorer
    return command_from_json(scorer) if scorer is not None else None
