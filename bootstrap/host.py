"""Which machine this is, and which boot of it, where the system tells."""

from __future__ import annotations

import re
from typing import Final

_MACHINE: Final = re.compile(r"[0-9a-f]{32}")  # machine-id(5)
_BOOT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # random(4)


def machine_id() -> str | None:
    """Return the id of this installation, or None, as in most containers.

    Clones of one image share it: the boot id tells them apart.
    """
    return _first_line("/etc/machine-id", _MACHINE)


def boot_id() -> str | None:
    """Return the id of this boot of the kernel, or None off Linux."""
    return _first_line("/proc/sys/kernel/random/boot_id", _BOOT)


def _first_line(path: str, form: re.Pattern[str]) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            line = file.readline(64).strip()
    except (OSError, ValueError):
        return None
    return line if form.fullmatch(line) else None
