"""Globs over whole paths, as `PurePath.full_match` of Python 3.13, the same on every Python.

`*`, `?` and `[...]` match within one component, names that begin with a dot included; `**`
as a component of its own matches any number of components, at the end at least one. Letter
case counts. One difference: here a set such as `[!a]` never matches a slash.

The path may be an agent's: matching takes time linear in it, whatever the pattern.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ANY_DEPTH: Final = "**"
_CACHED: Final = 1024  # directories: a visit asks for siblings one after the other


class _Place(NamedTuple):
    """How far into one pattern the components so far have come."""

    pattern: int
    part: int


class Globs:
    """A set of patterns; call it with a path to ask whether any of them matches."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """Compile patterns; raises ConfigurationError for one that can match no path below."""
        self.patterns = tuple(patterns)
        self._compiled = tuple(_compile(pattern) for pattern in self.patterns)
        self._start = self._settle(_Place(number, 0) for number in range(len(self.patterns)))
        self._after = lru_cache(_CACHED)(self._after_directory)

    def __call__(self, path: bytes) -> bool:
        """Tell whether a path, relative and without `.` or `..`, matches any pattern."""
        return any(place.part == len(self._compiled[place.pattern]) for place in self._reach(path))

    def _reach(self, path: bytes) -> frozenset[_Place]:
        directory, _, name = path.rpartition(b"/")
        return self._step(self._after(directory) if directory else self._start, name)

    def _after_directory(self, directory: bytes) -> frozenset[_Place]:
        places = self._start
        for name in directory.split(b"/"):
            places = self._step(places, name)
        return places

    def _step(self, places: frozenset[_Place], name: bytes) -> frozenset[_Place]:
        if not places:
            return places
        text = name.decode("utf-8", "surrogateescape")
        return self._settle(
            _Place(place.pattern, place.part + (part is not None))
            for place in places
            for part in self._compiled[place.pattern][place.part : place.part + 1]
            if part is None or part(text)
        )

    def _settle(self, places: Iterable[_Place]) -> frozenset[_Place]:
        # `**` also matches no component: stand before it and behind it at once.
        settled = set(places)
        for place in tuple(settled):
            if self._compiled[place.pattern][place.part : place.part + 1] == (None,):
                settled.add(_Place(place.pattern, place.part + 1))
        return frozenset(settled)


def _compile(pattern: str) -> tuple[Callable[[str], object] | None, ...]:
    """Return a matcher for each component, None for `**`; no two of those are neighbours."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or pattern.startswith("/") or "\0" in pattern:
        raise ConfigurationError(
            f"pattern {pattern!r}",
            expected="a relative path with no `..` and at least one component",
            found="another",
            remedy="write it relative to the top of the workspace",
        )
    compiled: list[Callable[[str], object] | None] = []
    for part in parts:
        if part != _ANY_DEPTH:
            compiled.append(re.compile(fnmatch.translate(part)).match)
        elif compiled[-1:] != [None]:
            compiled.append(None)
    if compiled[-1] is None:
        compiled.append(re.compile(fnmatch.translate("*")).match)
    return tuple(compiled)
