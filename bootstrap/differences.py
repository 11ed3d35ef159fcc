"""Compare two manifests, or a manifest and a live tree, holding one entry of each at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bootstrap.errors import TamperedStateError
from bootstrap.manifest import Entry, Tally, read_manifest, walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from bootstrap.files import Directory
    from bootstrap.visit import Rules


class Difference(NamedTuple):
    """A path that two trees tell differently; None where one of them does not have it."""

    path: bytes
    before: Entry | None
    after: Entry | None

    @property
    def judged(self) -> bool:
        """Tell whether the trees differ by what is judged, and not only by what is recorded."""
        return _judged(self.before) != _judged(self.after)


def compare(before: Iterable[Entry], after: Iterable[Entry]) -> Iterator[Difference]:
    """Yield each path that differs, by what is judged or only recorded, in order.

    Both sides are in the order of the visit; one entry of each is held at a time.
    """
    old, new = iter(before), iter(after)
    left, right = next(old, None), next(new, None)
    while left or right:
        side = _side(left, right)
        one = left if side <= 0 else None
        other = right if side >= 0 else None
        present = one or other
        if present and one != other:
            yield Difference(present.path, one, other)
        left = next(old, None) if one else left
        right = next(new, None) if other else right


def verified(entries: Iterable[Entry], tree_sha256: str) -> Iterator[Entry]:
    """Yield stored entries; raise TamperedStateError at the end of others than were written."""
    tally = Tally()
    for entry in entries:
        tally.add(entry)
        yield entry
    if tally.tree_sha256 != tree_sha256:
        raise TamperedStateError(
            "manifest",
            expected=tree_sha256,
            found=tally.tree_sha256,
            remedy="bootstrap the workspace again",
        )


def changed_paths(
    root: Directory, rules: Rules, manifest: BinaryIO, tree_sha256: str
) -> tuple[bytes, ...]:
    """Return the paths of a live tree that are not, as judged, what a stored manifest says.

    Raises TamperedStateError if the manifest is not the one of that digest, TreeError for a
    live path that cannot be read.
    """
    stored = verified(read_manifest(manifest), tree_sha256)
    return tuple(one.path for one in compare(stored, walk(root, rules)) if one.judged)


def _side(left: Entry | None, right: Entry | None) -> int:
    """Tell which entry comes first: below 0 the left one, above 0 the right, 0 both."""
    if left is None or right is None:
        return 1 if left is None else -1
    one, other = _order(left.path), _order(right.path)
    return (one > other) - (one < other)


def _order(path: bytes) -> bytes:
    # No name holds a NUL, and no byte sorts before it: a directory's content follows it.
    return path.replace(b"/", b"\0")


def _judged(entry: Entry | None) -> tuple[int, int, bytes] | None:
    if entry is None or entry.is_directory:
        return None
    return entry.judged_mode, entry.size, entry.content
