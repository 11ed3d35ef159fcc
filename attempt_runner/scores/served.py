"""Compare the model that a score says was served with the frozen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.bind_receipt import is_identifier
from bootstrap.errors import Finding, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attempt_runner.scores.score import Score

FIELD = "served_model"


def served_model(
    score: Score, frozen: str, aliases: Mapping[str, str], *, required: bool
) -> Finding | None:
    """Return what is wrong with the models a score names, or None.

    1. Where one is `required`, the score names at least one.
    2. Each one it names is the frozen id, byte for byte, or the operator's alias of it.

    Not checked: whether the scorer tells the truth about the model.
    """
    if required and not score.models:
        return Finding(FIELD, f"a score that names the model {frozen}", "none named")
    strangers = [model for model in score.models if frozen not in (model, aliases.get(model))]
    if strangers:
        return Finding(FIELD, frozen, ", ".join(strangers))
    return None


def parse_aliases(given: Sequence[str]) -> dict[str, str]:
    """Return `--model-alias SERVED=FROZEN` words as a mapping. Raises UsageError."""
    aliases: dict[str, str] = {}
    for word in given:
        served, _, frozen = word.partition("=")
        if not (is_identifier(served) and is_identifier(frozen)) or "=" in frozen:
            raise _refusal("SERVED=FROZEN, both of them model ids", word)
        if aliases.setdefault(served, frozen) != frozen:
            raise _refusal("one frozen id for each served one", word)
    return aliases


def _refusal(expected: str, found: str) -> UsageError:
    return UsageError("model-alias", expected=expected, found=found, remedy="correct it")


def model_evidence(score: Score) -> dict[str, list[str]]:
    """Return the observed ids under the names of the OpenTelemetry conventions for gen_ai."""
    found = {
        "gen_ai.request.model": list(score.requested),
        "gen_ai.response.model": list(score.answered),
    }
    return {name: models for name, models in found.items() if models}
