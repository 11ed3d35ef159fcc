"""Coverage: which differences of a workspace a patch can carry, and which refuse it.

Nothing is read here: two manifests were compared, and each difference is put where it
belongs. What git cannot show is never dropped in silence.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.errors import Finding
from bootstrap.manifest import SET_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bootstrap.differences import Difference
    from bootstrap.globs import Globs
    from bootstrap.manifest import Entry

NAMED_PATHS: Final = 20  # in one finding or one list of evidence; the count is always whole
_PATCHABLE: Final = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
_PATH_MAX: Final = 4095  # bytes; git names a file by its whole path (linux/limits.h)

# Git refuses these in a path on every system (read-cache.c, verify_path; path.c,
# is_ntfs_dotgit; utf8.c, is_hfs_dotgit), since somewhere they name its own directory.
_IGNORED_BY_HFS: Final = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_REPOSITORY: Final = re.compile(r"(?:\.git|git~1)[ .]*(?::|\Z)", re.IGNORECASE)
_MODULES: Final = re.compile(
    r"(?:\.gitmodules[ .]*|gitmod~\d|gi[\da-f]+~\d)(?::|\Z)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Differences that are told and not judged: how many, and the first of their paths."""

    modes: int
    owners: int
    directories: int
    first: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """Every difference of a workspace, each in one place.

    `patch` is what the patch shall carry, in the order of the manifest. `restored` are
    protected paths that the patch leaves as the baseline has them. `findings` is empty, or
    the patch must not be made.
    """

    patch: tuple[Difference, ...]
    restored: tuple[bytes, ...]
    findings: tuple[Finding, ...]
    recorded: Recorded


def sort_changes(
    differences: Iterable[Difference], protect: Globs, *, restore_protected: bool
) -> Sorting:
    """Put each difference in its place; memory grows with their number."""
    everything = tuple(differences)
    judged = [one for one in everything if one.judged]
    guarded = [one for one in judged if protect(one.path)]
    restored = _with_obstacles(judged, guarded) if restore_protected else frozenset()
    reasons = [
        (one.path, reason)
        for one in everything
        if one.path not in restored and (reason := why_uncovered(one))
    ]
    return Sorting(
        patch=tuple(one for one in judged if one.path not in restored),
        restored=tuple(sorted(restored)),
        findings=(
            *_protected(() if restore_protected else [one.path for one in guarded]),
            *_uncovered(reasons),
        ),
        recorded=_recorded([one for one in everything if not one.judged]),
    )


def why_uncovered(difference: Difference) -> str:
    """Return why a patch cannot show a difference, or an empty text where it can."""
    before, after = difference.before, difference.after
    if _set_id(after) != _set_id(before) and after and (before or not after.is_directory):
        return "set-id bit"
    if not difference.judged:
        return ""
    for entry in (before, after):
        if entry and (reason := _why_unpatchable(entry)):
            return reason
    return ""


def _why_unpatchable(entry: Entry) -> str:
    kind = stat.S_IFMT(entry.mode)
    if kind not in _PATCHABLE:
        return f"file type {stat.filemode(entry.mode)[0]}"
    if git_refuses(entry.path, is_link=kind == stat.S_IFLNK):
        return "a name that git refuses"
    return "a path too long for git" if len(entry.path) > _PATH_MAX else ""


def git_refuses(path: bytes, *, is_link: bool) -> bool:
    """Tell whether git takes a path for part of a repository, on this system or another.

    A nested repository's content is such a path, and so is a link named `.gitmodules`.
    """
    names = _IGNORED_BY_HFS.sub("", path.decode("utf-8", "surrogateescape"))
    parts = re.split(r"[/\\]", names)
    return any(_REPOSITORY.match(part) or (is_link and _MODULES.match(part)) for part in parts)


def name_paths(paths: Sequence[bytes]) -> str:
    """Return the first of some paths as text, not escaped, and how many there are."""
    named = ", ".join(os.fsdecode(path) for path in paths[:NAMED_PATHS])
    return named if len(paths) <= NAMED_PATHS else f"{len(paths)} paths: {named}"


def _with_obstacles(judged: list[Difference], guarded: list[Difference]) -> frozenset[bytes]:
    """Return the paths to restore, and those that stand where they, or their parents, must."""
    paths = {one.path for one in guarded}
    parents = {parent for path in paths for parent in _parents(path)}
    return frozenset(
        one.path
        for one in judged
        if one.path in paths or one.path in parents or not paths.isdisjoint(_parents(one.path))
    )


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:length]) for length in range(1, len(parts))]


def _set_id(entry: Entry | None) -> int:
    return entry.mode & SET_ID if entry else 0


def _protected(paths: Sequence[bytes]) -> tuple[Finding, ...]:
    if not paths:
        return ()
    return (Finding("protected_paths", "no change to a protected path", name_paths(paths)),)


def _uncovered(reasons: Sequence[tuple[bytes, str]]) -> tuple[Finding, ...]:
    if not reasons:
        return ()
    named = name_paths([path for path, _ in reasons])
    kinds = ", ".join(sorted({reason for _, reason in reasons}))
    return (Finding("coverage", "changes that a patch can show", f"{kinds}: {named}"),)


def _recorded(differences: Sequence[Difference]) -> Recorded:
    pairs = [(one.before, one.after) for one in differences if one.before and one.after]
    return Recorded(
        modes=sum(one.mode != other.mode for one, other in pairs),
        owners=sum((one.uid, one.gid) != (other.uid, other.gid) for one, other in pairs),
        directories=len(differences) - len(pairs),
        first=tuple(one.path for one in differences[:NAMED_PATHS]),
    )
