"""One life of a workspace: its token, what it froze, and the file that keeps both.

Bytes in, a Generation out; nothing here opens a file.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from bootstrap.bind_receipt import is_identifier, load_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

VERSION: Final = 1
Status = Literal["pending", "in_force"]

_ID: Final = re.compile(r"(gen|att)-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a bootstrap froze. None stands for what the attempt freezes later.

    `scorer` is the command as its own module writes and reads it: an object, not judged here.
    """

    model_id: str
    prompt_sha256: str | None = None
    scorer: Mapping[str, object] | None = None
    config_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation: the token of one life of one workspace, on one machine in one boot.

    `machine_id` and `boot_id` are None where the system has none. Device and inode tell the
    workspace directory itself. `minted_at` is for people.
    """

    generation: str
    minted_at: str
    status: Status
    frozen: Frozen
    machine_id: str | None
    boot_id: str | None
    workspace_device: int
    workspace_inode: int


def mint_id(prefix: Literal["gen", "att"], now: datetime) -> str:
    """Return a new id: prefix, UTC time, 128 random bits. Nothing is ordered by the time."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now.timestamp()))
    return f"{prefix}-{stamp}-{secrets.token_hex(16)}"


def is_minted(prefix: Literal["gen", "att"], text: str) -> bool:
    """Tell whether a text has the form that `mint_id` gives, so that it is a safe file name."""
    return _ID.fullmatch(text) is not None and text.startswith(prefix)


def encode_generation(generation: Generation) -> bytes:
    """Return the bytes of generation.json."""
    document = {"generation_version": VERSION, **asdict(generation)}
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("ascii")


def decode_generation(data: bytes) -> Generation:
    """Parse generation.json strictly: every key, no other, each of its type.

    Raises ValueError or TypeError, StrictJsonError included.
    """
    document = _object(load_json(data), {"generation_version", *_names(Generation)})
    version = document.pop("generation_version")
    if type(version) is not int or version != VERSION:
        raise ValueError(f"expected generation_version {VERSION}")
    frozen = _object(document.pop("frozen"), _names(Frozen))
    generation = Generation(**document, frozen=Frozen(**frozen))
    _require_types(generation)
    return generation


def _object(value: object, keys: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != keys:
        raise ValueError(f"expected an object with the keys {', '.join(sorted(keys))}")
    return value


def _names(kind: type[Generation | Frozen]) -> set[str]:
    return {field.name for field in fields(kind)}


def _require_types(generation: Generation) -> None:
    frozen = generation.frozen
    sound = {
        "generation": is_minted("gen", str(generation.generation)),
        "minted_at": isinstance(generation.minted_at, str),
        "status": generation.status in ("pending", "in_force"),
        "machine_id": _is_optional_text(generation.machine_id),
        "boot_id": _is_optional_text(generation.boot_id),
        "workspace_device": type(generation.workspace_device) is int,
        "workspace_inode": type(generation.workspace_inode) is int,
        "model_id": is_identifier(frozen.model_id),
        "prompt_sha256": _is_optional_digest(frozen.prompt_sha256),
        "scorer": frozen.scorer is None or isinstance(frozen.scorer, dict),
        "config_sha256": _is_optional_digest(frozen.config_sha256),
    }
    wrong = [name for name, holds in sound.items() if not holds]
    if wrong:
        raise TypeError(f"another kind of value in {', '.join(wrong)}")


def _is_optional_text(value: object) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _is_optional_digest(value: object) -> bool:
    return value is None or (isinstance(value, str) and _DIGEST.fullmatch(value) is not None)
