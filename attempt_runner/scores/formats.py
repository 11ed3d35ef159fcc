"""The table of formats: who reads each, and the exit codes its tools give with a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Beyond 127 a shell reports a signal: what a killed scorer left is not a verdict.
_ANY_FAILURE: Final = range(1, 128)
_ANY_EXIT: Final = range(256)
_ZERO: Final = range(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: its module, and what its tool promises.

    `passes` and `fails` are the exit codes that agree with such a verdict. `counted` formats
    count tests, so a minimum can be demanded; `numeric` ones need a threshold. `extra` is
    the optional dependency without which nothing of the format can be read, and `warning`
    what its user must be told.
    """

    module: str
    passes: range = _ZERO
    fails: range
    counted: bool = True
    numeric: bool = False
    extra: str = ""
    warning: str = ""


TABLE: Final[dict[str, Format]] = {
    # DESIGN section 6: a fail may come with any exit status.
    "score-json": Format(module="score_json", fails=_ANY_EXIT, counted=False),
    # pytest: 1 tests failed, 2 collection failed, 5 none collected; others count failures.
    "junit": Format(module="junit", fails=_ANY_FAILURE),
    "ctrf": Format(module="ctrf", fails=_ANY_FAILURE),
    "tap": Format(module="tap", fails=_ANY_FAILURE, extra="tap"),
    # inspect, Harbor, SWE-bench and lm-eval exit 0 whatever they found.
    "inspect": Format(module="inspect_log", fails=_ZERO, numeric=True),
    "swebench": Format(module="swebench", fails=_ZERO),
    "harbor": Format(module="harbor", fails=_ZERO, numeric=True),
    "promptfoo": Format(module="promptfoo", fails=range(100, 101)),
    "lm-eval": Format(module="lm_eval", fails=_ZERO, numeric=True),
    # ruff exits 1 with findings, CodeQL and semgrep 0.
    "sarif": Format(module="sarif", fails=range(128)),
    "exit-code": Format(
        module="",
        fails=_ANY_FAILURE,
        counted=False,
        warning="exit codes lie: several harnesses exit 0 on a run that failed or never began; "
        "use a format that is read where the tool writes one",
    ),
}
FORMATS: Final = tuple(TABLE)
