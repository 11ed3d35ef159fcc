"""Flags and job.toml to one frozen Job: the only place where configuration becomes values.

Every setting is a field of `Job`. Its name is the flag's and the key's (with dashes), its
type says what values it takes, and its metadata hold the rest: the table of job.toml where
it stands, the stage that reads it, and the help text. Command line, configuration file and
reference are all made from these fields.
"""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from bootstrap.bind_receipt import is_identifier
from bootstrap.errors import UsageError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Table = Literal["job", "agent", "scorer"]
Stage = Literal["both", "start", "attempt"]  # start: bootstrap reads it; attempt: the attempt does


def _about(table: Table, text: str, *, stage: Stage = "both", metavar: str = "") -> dict[str, str]:
    return {"table": table, "stage": stage, "help": text, "metavar": metavar}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the operator asked for it. Paths are absolute; nothing here came from an agent."""

    workspace: Path = field(
        metadata=_about("job", "Directory that the agent may write.", metavar="DIR")
    )
    model: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Model id to freeze; the default is $MODEL_ID at this moment.",
            stage="start",
            metavar="ID",
        ),
    )
    prompt: Path | None = field(
        default=None,
        metadata=_about(
            "job", "Prompt file, sealed before an agent could edit it.", metavar="FILE"
        ),
    )
    diff: Path | None = field(
        default=None,
        metadata=_about("job", "Diff file that the agent's work leaves.", metavar="FILE"),
    )
    base: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Trusted copy of the starting point: {tree} is this with the sealed diff applied.",
            metavar="DIR",
        ),
    )
    score_path: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Workspace path where a score could be planted: wiped before the agent and again "
            "before the scorer. Repeatable.",
            stage="start",
            metavar="PATH",
        ),
    )
    score_mount: bool = field(
        default=False,
        metadata=_about(
            "job", "Empty in place a score path that is itself a mount.", stage="start"
        ),
    )
    state_dir: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Private state directory that no agent can write; the default is $ATTEMPT_STATE_DIR, "
            "/var/lib/attempt-runner for root, else $XDG_STATE_HOME/attempt-runner.",
            metavar="DIR",
        ),
    )
    scratch_dir: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Where the exchange directories of agent and scorer are made; the default is $TMPDIR.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    wait: float = field(
        default=0.0,
        metadata=_about("job", "Seconds to wait for the workspace lock.", metavar="SECONDS"),
    )
    strict: bool = field(
        default=False,
        metadata=_about(
            "job",
            "Refuse (77) when an earlier run's processes cannot be proved gone.",
            stage="start",
        ),
    )
    isolation: str = field(
        default="auto",
        metadata=_about(
            "job",
            "Isolation tier of agent and scorer; none is tamper-evident only.",
            stage="attempt",
            metavar="TIER",
        ),
    )
    path_add: tuple[Path, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Directory put before the fixed PATH of agent and scorer. Repeatable.",
            metavar="DIR",
        ),
    )
    grace: float = field(
        default=10.0,
        metadata=_about(
            "job",
            "Seconds between TERM and KILL for a child.",
            metavar="SECONDS",
        ),
    )
    agent: str | None = field(
        default=None,
        metadata=_about(
            "agent",
            "Agent command, split once as a shell splits words; no shell is started. Knows "
            "{workspace} {prompt} {model}.",
            stage="attempt",
            metavar="COMMAND",
        ),
    )
    agent_timeout: float = field(
        default=3600.0,
        metadata=_about(
            "agent",
            "Seconds that the agent may run.",
            stage="attempt",
            metavar="SECONDS",
        ),
    )
    agent_exit_codes: tuple[int, ...] = field(
        default=(0,),
        metadata=_about(
            "agent",
            "Exit codes of the agent that count as done, separated by commas.",
            stage="attempt",
            metavar="CODES",
        ),
    )
    agent_pass_env: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "agent",
            "Variable passed on to the agent. Repeatable.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    agent_home_from: Path | None = field(
        default=None,
        metadata=_about(
            "agent",
            "Directory copied into the agent's fresh HOME.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    scorer: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Scorer command: the words after --, or a list of words. Knows {prompt} {diff} {score} "
            "{model} {generation} {attempt} {tree} {workspace}.",
            metavar="COMMAND",
        ),
    )
    score_format: str = field(
        default="score-json",
        metadata=_about(
            "scorer",
            "Format of the score that the scorer writes.",
            stage="attempt",
            metavar="FORMAT",
        ),
    )
    score_file: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "File that the scorer leaves in its score directory, which is then {score}. "
            "Repeatable: all must parse and pass.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    threshold: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Demand on a numeric score, such as accuracy>=0.8. Repeatable.",
            stage="attempt",
            metavar="METRIC>=N",
        ),
    )
    min_tests: int = field(
        default=1,
        metadata=_about(
            "scorer", "Tests that must have run for a pass.", stage="attempt", metavar="N"
        ),
    )
    model_alias: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Name under which a provider serves the frozen model. Repeatable.",
            stage="attempt",
            metavar="SERVED=FROZEN",
        ),
    )
    require_served_model: bool = field(
        default=False,
        metadata=_about(
            "scorer", "Reject a score that does not name the model served.", stage="attempt"
        ),
    )
    scorer_timeout: float = field(
        default=3600.0,
        metadata=_about(
            "scorer",
            "Seconds that the scorer may run.",
            stage="attempt",
            metavar="SECONDS",
        ),
    )
    scorer_pass_env: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Variable passed on to the scorer. Repeatable.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    scorer_home_from: Path | None = field(
        default=None,
        metadata=_about(
            "scorer",
            "Directory copied into the scorer's fresh HOME.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    scorer_reads_workspace: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "Let {workspace} in the scorer name the live workspace, which was not hashed.",
            stage="attempt",
        ),
    )
    scorer_may_be_unavailable: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "A scorer that exits 75 without a score means: start again (75), not reject.",
            stage="attempt",
        ),
    )
    tree_writable: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "Let the scorer write {tree}, which is thrown away.",
            stage="attempt",
        ),
    )
    config_sha256: str | None = None  # of the job.toml that was read; no setting of its own


def settings(*stages: Stage) -> tuple[Field[Any], ...]:
    """Return the fields of Job that are settings, of the given stages or of all."""
    known = (item for item in fields(Job) if item.metadata)
    return tuple(item for item in known if not stages or item.metadata["stage"] in stages)


def flag_of(name: str) -> str:
    """Return the dashed name that a setting has on the command line and in job.toml."""
    return name.replace("_", "-")


def resolve(
    flags: Mapping[str, object],
    config: Mapping[str, object],
    *,
    cwd: Path,
    config_dir: Path | None = None,
    config_sha256: str | None = None,
) -> Job:
    """Join flags over configuration over defaults into one Job.

    `flags` and `config` hold raw values by field name; a value of None counts as not given.
    Relative paths of flags are the caller's, those of the file are the file's directory's.
    Raises UsageError for a value of the wrong kind, or a required one that is missing.
    """
    values: dict[str, Any] = {}
    for item in settings():
        if (given := flags.get(item.name)) is not None:
            values[item.name] = _convert(item, given, cwd)
        elif (given := config.get(item.name)) is not None:
            values[item.name] = _convert(item, given, config_dir or cwd)
        elif item.default is MISSING:
            raise _missing(item.name)
    return Job(**values, config_sha256=config_sha256)


def _missing(name: str) -> UsageError:
    return UsageError(
        f"--{flag_of(name)}",
        expected="a value",
        found="none",
        remedy=f"give --{flag_of(name)}, or set {flag_of(name)} in job.toml",
    )


def _convert(item: Field[Any], given: object, directory: Path) -> object:
    convert, expected = CONVERTERS[str(item.type)]
    try:
        return convert(given, directory)
    except (TypeError, ValueError) as error:
        raise UsageError(
            flag_of(item.name), expected=expected, found=shown(repr(given)), remedy="correct it"
        ) from error


def _path(given: object, directory: Path) -> Path:
    text = os.fspath(given) if isinstance(given, Path) else _text(given, directory)
    if not text or "\0" in text:
        raise ValueError
    # Lexical only: a link in the workspace must not decide what an operator's path means.
    return Path(os.path.abspath(directory / text))


def _text(given: object, _directory: Path) -> str:
    if not isinstance(given, str) or not given or "\0" in given:
        raise TypeError
    return given


def _words(given: object, directory: Path) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list | tuple):
        raise TypeError
    return tuple(_text(word, directory) for word in given)


def _paths(given: object, directory: Path) -> tuple[Path, ...]:
    words = (given,) if isinstance(given, str | Path) else given
    if not isinstance(words, list | tuple):
        raise TypeError
    return tuple(_path(word, directory) for word in words)


def _seconds(given: object, _directory: Path) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError
    if not (math.isfinite(given) and given >= 0):
        raise ValueError
    return float(given)


def _count(given: object, _directory: Path) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError
    return given


def _codes(given: object, _directory: Path) -> tuple[int, ...]:
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not words:
        raise TypeError
    codes = tuple(int(word) for word in words)
    if not all(0 <= code <= 255 for code in codes):  # noqa: PLR2004 - an exit status is one byte
        raise ValueError
    return codes


def _flag(given: object, _directory: Path) -> bool:
    if not isinstance(given, bool):
        raise TypeError
    return given


CONVERTERS: Final[dict[str, tuple[Callable[[object, Path], object], str]]] = {
    "Path": (_path, "a path"),
    "Path | None": (_path, "a path"),
    "bool": (_flag, "true or false"),
    "int": (_count, "a whole number"),
    "float": (_seconds, "a number of seconds, 0 or more"),
    "str": (_text, "a text that is not empty"),
    "str | None": (_text, "a text that is not empty"),
    "tuple[Path, ...]": (_paths, "a list of paths"),
    "tuple[int, ...]": (_codes, "exit codes from 0 to 255"),
    "tuple[str, ...]": (_words, "a list of texts, none empty"),
}


def frozen_model(job: Job, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the model ids to try, in order: `--model`, else `$MODEL_ID` at this moment."""
    given = job.model or tuple(filter(None, [environ.get("MODEL_ID")]))
    if not given:
        raise _missing("model")
    for model in given:
        if not is_identifier(model):
            raise UsageError(
                "model",
                expected="1 to 256 visible ASCII characters, no space, no leading dash",
                found=shown(repr(model)),
                remedy="give the id exactly as the provider spells it",
            )
    return given


def split_command(setting: str, command: str) -> tuple[str, ...]:
    """Split a command string once, as a shell splits words. Raises UsageError."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(
            setting, expected="a command with balanced quotes", found=str(error), remedy="quote it"
        ) from error
    if not words:
        raise UsageError(setting, expected="a command", found="no words", remedy="name a program")
    return words
