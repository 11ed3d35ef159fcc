"""Exchange directories: what a child is given, outside the state directory.

Each attempt has one root beneath the scratch directory, 0711 so that a child can pass
through it and list nothing, and below it a room for the agent and one for the scorer.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError
from bootstrap.files import Directory, make_directory, open_directory, storage_error
from bootstrap.identity import EXCHANGE_PREFIX
from bootstrap.seal import seal
from bootstrap.wipe import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.isolate import User

PASS_THROUGH: Final = 0o711
PRIVATE: Final = 0o700


@dataclass(frozen=True, slots=True)
class OwnRoom:
    """What is made for one child alone: a fresh HOME and TMPDIR, and read-only inputs by name."""

    root: Path
    home: Path
    tmp: Path
    inputs: Mapping[str, Path]


def make_exchange(scratch: Path) -> Directory:
    """Make the exchange root of one attempt beneath the scratch directory.

    Raises ConfigurationError where nothing can be made there.
    """
    try:
        with open_directory(Path(os.path.realpath(scratch))) as parent:
            return make_directory(parent, EXCHANGE_PREFIX + secrets.token_hex(8), PASS_THROUGH)
    except OSError as error:
        raise ConfigurationError(
            f"scratch directory {scratch}",
            expected="a directory that the runner can write",
            found=error.strerror or "an error",
            remedy="name one with --scratch-dir",
        ) from error


def furnish(
    exchange: Directory,
    name: str,
    inputs: Mapping[str, int],
    home_from: Path | None,
    user: User | None,
) -> OwnRoom:
    """Make one child's room: HOME, TMPDIR and a read-only copy of each open input file.

    `home_from` is the operator's directory, copied with its links as links. HOME and TMPDIR
    are given to `user`. Raises ConfigurationError if it cannot be copied, StorageError if
    ours cannot be made.
    """
    try:
        with make_directory(exchange, name, PASS_THROUGH) as room:
            for directory in ("home", "tmp"):
                with make_directory(room, directory, PRIVATE) as made:
                    give(made, user)
            for file, source in inputs.items():
                seal(source, room, file)
            if home_from:
                _copy_home(home_from, room.path / "home", user)
            copies = {file: room.path / file for file in inputs}
            return OwnRoom(room.path, room.path / "home", room.path / "tmp", copies)
    except OSError as error:
        raise storage_error(exchange.path / name, error) from error


def give(directory: Directory, user: User | None) -> None:
    """Give a directory of ours to the user that a child runs as. Raises OSError."""
    if user is not None:
        os.fchown(directory.fd, *user)


def give_tree(root: Path, user: User | None) -> None:
    """Give a tree of ours, links as links, to the user that a child runs as. Raises OSError."""
    if user is not None:
        for path in (root, *root.rglob("*")):
            os.chown(path, *user, follow_symlinks=False)


def _copy_home(source: Path, target: Path, user: User | None) -> None:
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        target.chmod(PRIVATE)  # not the mode of the source: it may hold keys
        give_tree(target, user)
    except (OSError, shutil.Error) as error:
        raise ConfigurationError(
            f"home directory {source}",
            expected="a directory that can be copied",
            found=str(error),
            remedy="name a readable directory of plain files",
        ) from error


def remove_exchange(exchange: Directory) -> None:
    """Remove an exchange root with everything in it, and close it. Raises WipeError."""
    with open_directory(exchange.path.parent) as scratch:
        remove_tree(scratch, exchange.path.name)
    exchange.close()
