"""A first job.toml for what a workspace looks like: detected by its files, explained by line."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final, Literal

from attempt_runner.settings import flag_of, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Kind = Literal["pytest", "npm", "inspect", "plain"]
KINDS: Final[tuple[Kind, ...]] = ("pytest", "npm", "inspect", "plain")
LOOKED_AT: Final = 256 * 1024  # bytes of a file of the workspace's that are looked at
COMMENT: Final = 92  # columns of a comment line
SCORERS: Final[Mapping[Kind, Mapping[str, object]]] = {
    "pytest": {
        "scorer": ["pytest", "-q", "-p", "no:cacheprovider", "--junitxml={score}"],
        "score-format": "junit",
    },
    "npm": {
        "scorer": [
            *("node", "--test", "--test-reporter=tap"),
            "--test-reporter-destination={score}",
        ],
        "score-format": "tap",
    },
    "inspect": {
        "scorer": ["./inspect.sh", "{model}", "{score}"],
        "score-format": "inspect",
        "score-file": ["score.eval"],
        "threshold": ["accuracy>=0.8"],
        "require-served-model": True,
    },
    "plain": {"scorer": ["./scorer", "{diff}"], "score-format": "score-json"},
}
TO_WRITE: Final[Mapping[Kind, str]] = {
    "inspect": "Write ./inspect.sh beside this file first: docs/scores.md has one.",
    "plain": 'Write ./scorer beside this file first: it leaves {"verdict": "pass" or "fail", '
    '"reasons": ["..."]} in the file that $SCORE_FILE names.',
}


def detect(workspace: Path) -> Kind:
    """Tell what would judge a change of this workspace, by files whose content decides nothing."""
    told = "".join(_text(workspace / name) for name in ("pyproject.toml", "requirements.txt"))
    if "inspect_ai" in told or "inspect-ai" in told:
        return "inspect"
    if (workspace / "package.json").is_file():
        return "npm"
    if "pytest" in told or any((workspace / name).exists() for name in ("pytest.ini", "tests")):
        return "pytest"
    return "plain"


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(LOOKED_AT).decode("utf-8", "replace")


def write_starter(kind: Kind, workspace: Path, model: str, prompt: str) -> str:
    """Return the text of a commented job.toml."""
    tables: dict[str, dict[str, object]] = {
        "job": {"workspace": str(workspace), "model": [model], "prompt": prompt, "capture": True},
        "scorer": dict(SCORERS[kind]),
    }
    parts = ["# What `attempt-runner run --config` does. Keep it outside the workspace.\n"]
    parts += ["".join(_table(name, values, kind)) for name, values in tables.items()]
    parts.insert(2, _AGENT)
    return "\n".join(parts)


_AGENT: Final = """\
[agent]
# Left out, the workspace is judged as it is. With an agent, the runner starts it first:
# agent = "my-agent --prompt {prompt} --model {model}"
# agent-timeout = 3600
"""


def _table(name: str, values: Mapping[str, object], kind: Kind) -> Iterator[str]:
    about = {flag_of(item.name): item.metadata["help"] for item in settings()}
    yield f"[{name}]\n"
    for key, value in values.items():
        yield from _comment(about[key])
        if key == "scorer" and kind in TO_WRITE:
            yield from _comment(TO_WRITE[kind])
        yield f"{key} = {_toml(_placed(value) if key == 'scorer' else value)}\n"


def _placed(value: object) -> object:
    """Name the program by its path here: a scorer's PATH is fixed and holds no environment."""
    if not isinstance(value, list):
        return value
    program, *words = value
    return [shutil.which(program) or program, *words]


def _comment(text: str) -> Iterator[str]:
    import textwrap  # noqa: PLC0415 - used once

    for line in textwrap.wrap(text, COMMENT):
        yield f"# {line}\n"


def _toml(value: object) -> str:
    """Spell a value as TOML, whose strings, lists and booleans of ASCII are JSON's."""
    return json.dumps(value)
