"""Where the private state of a workspace lies: from the environment to a folder's name."""

from __future__ import annotations

import os
import re
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_DIR_VARIABLE: Final = "ATTEMPT_STATE_DIR"
SYSTEM_ROOT: Final = Path("/var/lib/attempt-runner")
NAME_LIMIT: Final = 64  # bytes of a basename or host in a folder's name: it is for people

_UNSAFE: Final = re.compile(rb"^[.-]|[^A-Za-z0-9._-]")


def default_root(environ: Mapping[str, str], uid: int) -> Path:
    """Return the state directory of a user who named none with a flag.

    `$ATTEMPT_STATE_DIR`, else /var/lib/attempt-runner for root, else
    `$XDG_STATE_HOME/attempt-runner`, else `$HOME/.local/state/attempt-runner` (XDG Base
    Directory Specification: a relative value is ignored). The password database is not asked.
    Raises ConfigurationError where nothing tells, or `$ATTEMPT_STATE_DIR` is relative.
    """
    if named := environ.get(STATE_DIR_VARIABLE):
        return _absolute(named, f"${STATE_DIR_VARIABLE}")
    if uid == 0:
        return SYSTEM_ROOT
    for variable, beneath in (("XDG_STATE_HOME", ""), ("HOME", ".local/state")):
        if (base := environ.get(variable, "")).startswith("/"):
            return _absolute(base, f"${variable}") / beneath / "attempt-runner"
    raise ConfigurationError(
        "state directory",
        expected=f"${STATE_DIR_VARIABLE}, $XDG_STATE_HOME or $HOME",
        found="none of them",
        remedy="name a private directory with --state-dir",
    )


def _absolute(text: str, what: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        raise ConfigurationError(
            what, expected="an absolute path", found=text, remedy="give the whole path"
        )
    return path


class Workspace(NamedTuple):
    """A workspace by its real path, and by what tells it whatever path leads to it."""

    path: Path
    device: int
    inode: int


def identify_workspace(path: Path) -> Workspace:
    """Resolve a workspace, following links. Raises ConfigurationError."""
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError, ValueError) as error:
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise _no_workspace(path, str(found)) from error
    if not stat.S_ISDIR(status.st_mode):
        raise _no_workspace(path, "another kind of file")
    return Workspace(real, status.st_dev, status.st_ino)


def _no_workspace(path: Path, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"workspace {path}",
        expected="a directory",
        found=found,
        remedy="create it, or name another with --workspace",
    )


def folder_name(workspace: Path, host: str | None) -> str:
    """Return the name of a workspace's folder: its basename and 12 hex of its path's sha256.

    Bytes of the basename that a shell or a terminal could stumble over become `_`. On a
    filesystem that other hosts share, the host is part of the name.
    """
    digest = sha256(os.fsencode(workspace)).hexdigest()[:12]
    name = f"{_readable(os.fsencode(workspace.name)) or '_'}-{digest}"
    return name if host is None else f"{name}-{_readable(os.fsencode(host))}"


def _readable(name: bytes) -> str:
    return _UNSAFE.sub(b"_", name)[:NAME_LIMIT].decode("ascii")
