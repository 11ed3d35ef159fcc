"""From what an operator wrote to a path beneath the workspace; nothing is looked up."""

from __future__ import annotations

import os
from typing import Final

from bootstrap.errors import ConfigurationError
from bootstrap.files import AgentPath

_NAME_MAX: Final = 255  # bytes; no Linux filesystem stores a longer name
_PATH_MAX: Final = 4096  # bytes, the final NUL included (limits.h)


def check_score_path(text: str) -> AgentPath:
    """Return a score path in its one spelling: relative, no `.`, no `..`, no doubled slash.

    A trailing slash is dropped: it never means the target of a link. Raises
    ConfigurationError for an empty or absolute path, the workspace itself, `..`, NUL, and
    names or paths too long to exist.
    """
    try:
        path = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise _bad_path(text, "text that no file name can hold") from error
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    wrong = {
        "nothing": not path,
        "an absolute path": path.startswith(b"/"),
        "the workspace itself": not parts,
        "a '..'": b".." in parts,
        "a NUL byte": b"\0" in path,
        "a name or path that is too long": len(path) >= _PATH_MAX
        or any(len(part) > _NAME_MAX for part in parts),
    }
    for found, is_wrong in wrong.items():
        if is_wrong:
            raise _bad_path(text, found)
    return AgentPath(b"/".join(parts))


def _bad_path(text: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"score path {text}",
        expected="a path beneath the workspace",
        found=found,
        remedy="write it relative to the workspace, without '..'",
    )
