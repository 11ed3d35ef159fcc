"""Live inputs: the diff and the prompt as they lie where an agent may write, or outside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote_to_bytes

from bootstrap.errors import UnsafeFileError
from bootstrap.files import READ_FLAGS, AgentPath, open_regular, require_regular

if TYPE_CHECKING:
    from bootstrap.files import Directory


@dataclass(frozen=True, slots=True)
class LivePath:
    """A file that the operator named: `path` as named, `inside` if it lies in the workspace."""

    path: Path
    inside: AgentPath | None


def place(path: Path, named: Path, real: Path) -> LivePath:
    """Tell whether an absolute path lies in the workspace, given as named and as real path.

    The path is judged as it is written before links are looked at, so that a link planted in
    the workspace cannot move a path out of it.
    """
    resolved = Path(os.path.realpath(path.parent)) / path.name
    for candidate, root in ((path, named), (path, real), (resolved, real)):
        if candidate.is_relative_to(root):
            return LivePath(path, AgentPath(os.fsencode(candidate.relative_to(root))))
    return LivePath(path, None)


def open_live(live: LivePath, workspace: Directory, *, may_be_link: bool = False) -> int:
    """Open a live file for reading: beneath the workspace's descriptor where it lies there.

    `may_be_link` admits a link as the last component of an operator's path outside the
    workspace (a mounted ConfigMap is one). Raises UnsafeFileError.
    """
    if live.inside is not None:
        return open_regular(workspace, live.inside)
    flags = READ_FLAGS & ~os.O_NOFOLLOW if may_be_link else READ_FLAGS
    try:
        fd = os.open(live.path, flags)
    except OSError as error:
        reason = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        raise UnsafeFileError(
            str(live.path), expected="a regular file", found=error.strerror or "", reason=reason
        ) from error
    try:
        require_regular(fd, live.path, single_link=not may_be_link)
    except UnsafeFileError:
        os.close(fd)
        raise
    return fd


def path_to_json(path: bytes | Path) -> str:
    """Return any path as ASCII text: percent-encoded as in a URI (RFC 3986, section 2.1)."""
    return quote_from_bytes(os.fsencode(path))


def path_from_json(text: str) -> bytes:
    """Return the bytes that `path_to_json` encoded. Raises ValueError for none that a path has."""
    path = unquote_to_bytes(text)
    if not path or b"\0" in path:
        raise ValueError(f"{text!r} is no path")
    return path
