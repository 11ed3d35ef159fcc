"""Run a script as somebody: as the test's own user, or from root as a plain one."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PLAIN: Final = 61_000  # a user that no machine has
AGENT: Final = 61_001  # as above, for what root starts


@cache
def plain_python() -> str | None:
    """Return a Python 3.11 or newer that every user can start, or None."""
    for name in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        # setpriv keeps root's capabilities until it executes: can the user start it again?
        check = "import os, sys, tomllib; sys.exit(not os.access(sys.executable, os.X_OK))"
        argv = (*as_plain(), name, "-I", "-S", "-c", check)
        if (
            shutil.which(name)
            and subprocess.run(argv, capture_output=True, check=False).returncode == 0
        ):
            return name
    return None


def _succeeds(argv: tuple[str, ...]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def as_plain() -> tuple[str, ...]:
    """Return what to put before an argv so that a plain user runs it."""
    if os.geteuid() != 0:
        return ()
    user = str(PLAIN)
    return ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--")


@contextmanager
def common_ground(owner: int | None = None) -> Iterator[Path]:
    """Make a directory that others may pass through: those of pytest are private."""
    path = Path(tempfile.mkdtemp(prefix="attempt-test-", dir="/tmp"))
    try:
        path.chmod(0o755)
        if owner is not None and os.geteuid() == 0:
            os.chown(path, owner, owner)
        yield path
    finally:
        shutil.rmtree(path, onerror=_make_writable)


def _make_writable(_function: object, path: str, _error: object) -> None:
    parent = os.path.dirname(path)
    os.chmod(parent, stat.S_IRWXU)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def run_python(
    script: Path | str, *args: str, plain: bool, wrapper: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script by path, in a session of its own, as root or as a plain user."""
    python = plain_python() if plain else sys.executable
    assert python is not None
    before = as_plain() if plain else ()
    return subprocess.run(
        (*wrapper, *before, python, str(script), *args),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONDONTWRITEBYTECODE": "1"},
    )
