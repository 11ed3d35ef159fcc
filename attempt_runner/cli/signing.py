"""What the commands that hold a key share. The signing libraries are brought in here, when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attempt_runner.keyfiles import MAX_KEY_BYTES, read_file, read_private_key
from bootstrap.errors import ConfigurationError, UnsafeFileError
from bootstrap.reaper import guard_runner

if TYPE_CHECKING:
    from pathlib import Path

    from attempt_runner.keys import PublicKey, SigningKey


def hold_key(path: Path, workspace: Path | None) -> SigningKey:
    """Read a private key, once nobody else can read this process's memory any more.

    Raises ConfigurationError for a key that others could read, and without the extra [sign].
    """
    guard_runner()
    from attempt_runner.keys import parse_private_key  # noqa: PLC0415 - needs the extra [sign]

    return parse_private_key(read_private_key(path, workspace), str(path))


def load_public_key(path: Path) -> PublicKey:
    """Read the key to verify with: whoever chooses it decides whom to believe.

    Raises ConfigurationError for no such key, and without the extra [sign].
    """
    from attempt_runner.keys import parse_public_key  # noqa: PLC0415 - needs the extra [sign]

    return parse_public_key(read_named(path, MAX_KEY_BYTES, "key"), str(path))


def read_named(path: Path, limit: int, what: str) -> bytes:
    """Read a file that the operator vouches for. Raises ConfigurationError."""
    try:
        return read_file(path, limit)
    except UnsafeFileError as error:
        raise ConfigurationError(
            f"{what} {path}",
            expected=error.expected,
            found=error.found,
            remedy="name a file that you trust",
        ) from error
