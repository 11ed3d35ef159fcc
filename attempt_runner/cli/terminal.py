"""What only a terminal gets: colour, and lines as wide as it is. A pipe gets every byte, plain."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Final

COLOURS: Final = {
    "accepted": "32",
    "consumed": "32",
    "rejected": "31",
    "revoked": "31",
    "attempt_aborted": "33",
    "open": "33",
    "strong": "1",
}
CUT: Final = "..."


def is_terminal() -> bool:
    """Tell whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def paint(text: str, kind: str) -> str:
    """Colour a text by the outcome that it tells, where that is wanted (see no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if kind not in COLOURS or plain or not is_terminal():
        return text
    return f"\x1b[{COLOURS[kind]}m{text}\x1b[0m"


def fit(text: str) -> str:
    """Cut the lines of a plain text to the terminal's width; --json and a pipe have all of it."""
    if not is_terminal():
        return text
    width = shutil.get_terminal_size().columns
    return "".join(
        f"{line if len(line) <= width else line[: width - len(CUT)] + CUT}\n"
        for line in text.splitlines()
    )


def wrap(text: str, indent: int) -> str:
    """Break the lines of a plain text at the terminal's width; what follows stands indented."""
    if not is_terminal():
        return text
    width = shutil.get_terminal_size().columns
    return "".join(
        f"{textwrap.fill(line, width, subsequent_indent=' ' * indent, break_on_hyphens=False)}\n"
        for line in text.splitlines()
    )
