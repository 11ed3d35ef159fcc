"""The probe table: what this machine has, asked once by behaviour, and one way to skip.

A test that needs a part carries `@needs("part")`. The summary counts each part that was
missing, so that a skipped test is never quiet.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LANDLOCK_CREATE_RULESET: Final = 444
OVERLAY: Final = """
mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir lower upper work top &&
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work top
"""


def _runs(*argv: str) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=20, check=False)
    except OSError:
        return False
    return done.returncode == 0


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, or 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)))


@cache
def python39() -> str | None:
    """Return the path of a real Python 3.9 interpreter, or None."""
    candidates = [
        shutil.which("python3.9"),
        *map(str, Path.home().glob(".pyenv/versions/3.9*/bin/python3.9")),
    ]
    for candidate in filter(None, candidates):
        if _runs(candidate, "-I", "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 9))"):
            return candidate
    return None


PROBES: Final[dict[str, Callable[[], bool]]] = {
    "browser": lambda: all(map(_runs, ("chromium", "chromedriver"), ("--version",) * 2)),
    "bwrap": lambda: _runs("bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"),
    "git": lambda: _runs("git", "--version"),
    "jq": lambda: _runs("jq", "--version"),
    "landlock": lambda: landlock_abi() >= 3,
    "linux": lambda: sys.platform == "linux",
    "mount": lambda: _runs("unshare", "--mount", "true"),
    "openssl": lambda: _runs("sh", "-c", "openssl pkeyutl -help 2>&1 | grep -q rawin"),
    "overlay": lambda: _runs("unshare", "--mount", "sh", "-c", OVERLAY),
    "pid-namespace": lambda: _runs("unshare", "--pid", "--fork", "--mount-proc", "true"),
    "plain-user": lambda: os.geteuid() != 0,
    "python3.9": lambda: python39() is not None,
    "root": lambda: os.geteuid() == 0,
    "slurm": lambda: shutil.which("slurmctld") is not None,
    "strace": lambda: _runs("strace", "-V"),
    "tini": lambda: _runs("tini", "--version"),
    "tmux": lambda: _runs("tmux", "-V"),
}


@cache
def has(part: str) -> bool:
    """Tell whether the machine has a part of the probe table."""
    return PROBES[part]()


def needs(*parts: str) -> pytest.MarkDecorator:
    """Skip a test, naming what is missing, unless the machine has every part."""
    missing = [part for part in parts if not has(part)]
    return pytest.mark.skipif(bool(missing), reason=f"machine lacks: {', '.join(missing)}")
