"""Flags over job.toml over defaults: the one place where configuration becomes values."""

from __future__ import annotations

import math
import os
import shlex
from dataclasses import MISSING, Field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.settings import Job, flag_of, settings
from bootstrap.bind_receipt import is_identifier
from bootstrap.errors import UsageError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def resolve(
    flags: Mapping[str, object],
    config: Mapping[str, object],
    *,
    cwd: Path,
    config_path: Path | None = None,
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
            values[item.name] = _convert(item, given, config_path.parent if config_path else cwd)
        elif item.default is MISSING:
            raise _missing(item.name)
    return Job(**values, config_path=config_path, config_sha256=config_sha256)


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
    except (TypeError, ValueError, OverflowError) as error:
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
    if given < 0:
        raise ValueError
    return given


def _codes(given: object, _directory: Path) -> tuple[int, ...]:
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not words:
        raise TypeError
    codes = tuple(map(_code, words))
    if not all(0 <= code <= 255 for code in codes):  # noqa: PLR2004 - an exit status is one byte
        raise ValueError
    return codes


def _code(word: object) -> int:
    if type(word) is int:
        return word
    if not isinstance(word, str) or not (word.isascii() and word.isdigit()):
        raise TypeError
    return int(word)


def _flag(given: object, _directory: Path) -> bool:
    if not isinstance(given, bool):
        raise TypeError
    return given


CONVERTERS: Final[dict[str, tuple[Callable[[object, Path], object], str]]] = {
    "Path": (_path, "a path"),
    "Path | None": (_path, "a path"),
    "bool": (_flag, "true or false"),
    "int": (_count, "a whole number, 0 or more"),
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
