"""Freeze a command: resolve its program once, and digest every file that its words name."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError, Finding, shown
from bootstrap.seal import digest_fd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FIXED_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class FrozenCommand:
    """A command as it will be started, its `{words}` not yet replaced.

    `argv[0]` is the absolute path of the program. `files` maps the absolute path of the
    program, and of each argument that is a regular file, to the sha256 of its bytes.
    """

    argv: tuple[str, ...]
    files: Mapping[str, str]


def search_path(added: Iterable[Path]) -> str:
    """Return the PATH of children: the operator's additions, then the fixed one."""
    return os.pathsep.join([*map(str, added), FIXED_PATH])


def freeze_command(
    argv: tuple[str, ...], *, path: str, cwd: Path, arguments_from_cwd: bool
) -> FrozenCommand:
    """Resolve and digest a command that an operator gave.

    A program with a slash is relative to `cwd`, the caller's directory; one without is looked
    up in `path`. With `arguments_from_cwd` a relative argument that names a regular file is
    the caller's too and becomes absolute; without, arguments stay as they are, since the
    command will run in a directory of its own. Raises ConfigurationError.
    """
    program = _program(argv[0], path, cwd)
    rest = tuple(_argument(word, cwd) if arguments_from_cwd else word for word in argv[1:])
    frozen = (program, *rest)
    files = {word: _digest(word) for word in frozen if _is_regular(word)}
    return FrozenCommand(frozen, files)


def changed_files(command: FrozenCommand) -> tuple[Finding, ...]:
    """Compare the files of a frozen command with what lies there now, one finding a file."""
    return tuple(
        Finding("scorer", f"{path} with sha256 {digest}", found)
        for path, digest in command.files.items()
        if (found := _digest_or_cause(path)) != digest
    )


def _program(word: str, path: str, cwd: Path) -> str:
    candidate = os.path.abspath(cwd / word) if "/" in word else shutil.which(word, path=path)
    if candidate is None or not _is_regular(candidate):
        raise ConfigurationError(
            f"program {shown(word)}",
            expected="an executable file",
            found=f"none on {shown(path)}" if "/" not in word else f"no file at {shown(candidate)}",
            remedy="give its absolute path, or add its directory with --path-add",
        )
    if not os.access(candidate, os.X_OK):
        raise ConfigurationError(
            f"program {shown(word)}",
            expected="an executable file",
            found="a file that the runner may not execute",
            remedy="chmod +x it, or name the interpreter before it",
        )
    return candidate


def _argument(word: str, cwd: Path) -> str:
    candidate = os.path.abspath(cwd / word)
    return candidate if _is_regular(candidate) else word


def _is_regular(word: str) -> bool:
    try:
        return os.path.isabs(word) and stat.S_ISREG(os.stat(word).st_mode)
    except (OSError, ValueError):
        return False


def _digest(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return digest_fd(fd).sha256
        finally:
            os.close(fd)
    except OSError as error:
        raise ConfigurationError(
            path,
            expected="a readable file",
            found=os.strerror(error.errno or 0),
            remedy="make what the command names readable for the runner",
        ) from error


def _digest_or_cause(path: str) -> str:
    if not _is_regular(path):
        return "no regular file"
    try:
        return _digest(path)
    except ConfigurationError as error:
        return error.found
