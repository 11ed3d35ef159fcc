"""attempt.json: the frozen identity of one attempt, written by the runner, read strictly."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from bootstrap.bind_receipt import StrictJsonError, load_json
from bootstrap.errors import TamperedStateError, UnsafeFileError
from bootstrap.files import AgentPath, Directory, read_regular, write_replacing
from bootstrap.freeze import FrozenCommand
from bootstrap.live import LivePath, path_from_json, path_to_json
from bootstrap.proctable import ProcessId

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "attempt.json"
VERSION: Final = 1
EXCHANGE_PREFIX: Final = "attempt-exchange-"
_EXCHANGE: Final = re.compile(re.escape(EXCHANGE_PREFIX) + "[0-9a-f]{16}")
_READABLE: Final = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("%"))
MAX_BYTES: Final = 1024 * 1024  # argv and digests; a command line is at most 128 KiB a word


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenAttempt:
    """What an attempt was frozen to, as far as it means something on every host.

    `isolation` is evidence for people and for `gate --require`; `baseline` says what a
    captured change was compared with.
    """

    attempt_id: str
    generation: str
    model_id: str
    workspace_device: int
    workspace_inode: int
    scorer: FrozenCommand
    score_format: str
    scored: str
    isolation: Mapping[str, object]
    baseline: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptIdentity(FrozenAttempt):
    """Who an attempt is, frozen before anything of the agent's or scorer's runs.

    `diff` is None where the runner captures the change itself. `processes` maps runner, agent
    and scorer to what was started, and grows as they start; nothing else changes after the
    first write.
    """

    workspace: Path
    diff: LivePath | None
    prompt: LivePath
    agent: FrozenCommand | None
    marker: str
    exchange: Path
    boot_id: str | None
    processes: Mapping[str, ProcessId] = field(default_factory=dict)


def write_identity(directory: Directory, identity: AttemptIdentity) -> None:
    """Put attempt.json in place of what stood there, durably. Raises StorageError."""
    document = frozen_to_json(identity) | {
        "attempt_version": VERSION,
        "agent": command_to_json(identity.agent) if identity.agent else None,
        "boot_id": identity.boot_id,
        "diff": _live_to_json(identity.diff) if identity.diff else None,
        "exchange": path_to_json(identity.exchange),
        "marker": identity.marker,
        "processes": {
            name: [process.pid, process.start_ticks] for name, process in identity.processes.items()
        },
        "prompt": _live_to_json(identity.prompt),
        "workspace": path_to_json(identity.workspace),
    }
    data = json.dumps(document, indent=2, sort_keys=True) + "\n"
    write_replacing(directory, NAME, data.encode("ascii"))


def read_identity(directory: Directory, attempt_id: str) -> AttemptIdentity:
    """Read attempt.json of the attempt that was asked for.

    Raises TamperedStateError for any other content, another attempt's included: a whole
    directory that was copied must not be judged under a second name.
    """
    try:
        document = load_json(read_regular(directory, NAME, MAX_BYTES))
        return _from_json(document, attempt_id)
    except (
        UnsafeFileError,
        StrictJsonError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise TamperedStateError(
            str(directory.path / NAME),
            expected="the identity that the runner wrote",
            found=f"{type(error).__name__}: {error}",
        ) from error


def _from_json(document: Any, attempt_id: str) -> AttemptIdentity:
    if _number(document["attempt_version"]) != VERSION:
        raise ValueError("another version of the file format")
    if document["attempt_id"] != attempt_id:
        raise ValueError("the identity of another attempt")
    return AttemptIdentity(
        **_frozen_fields(document),
        workspace=_path(document["workspace"]),
        diff=_live(document["diff"]) if document["diff"] is not None else None,
        prompt=_live(document["prompt"]),
        agent=command_from_json(document["agent"]) if document["agent"] is not None else None,
        marker=_text(document["marker"]),
        exchange=_exchange(document["exchange"]),
        boot_id=_text(document["boot_id"]) if document["boot_id"] is not None else None,
        processes={
            name: ProcessId(_number(pid), _number(ticks))
            for name, (pid, ticks) in document["processes"].items()
        },
    )


def frozen_to_json(frozen: FrozenAttempt) -> dict[str, object]:
    """Return what holds on every host as attempt.json and an attestation keep it."""
    return {
        "attempt_id": frozen.attempt_id,
        "baseline": frozen.baseline,
        "generation": frozen.generation,
        "isolation": dict(frozen.isolation),
        "model_id": frozen.model_id,
        "score_format": frozen.score_format,
        "scored": frozen.scored,
        "scorer": command_to_json(frozen.scorer),
        "workspace_device": frozen.workspace_device,
        "workspace_inode": frozen.workspace_inode,
    }


def frozen_from_json(document: Any) -> FrozenAttempt:
    """Return the attempt that `frozen_to_json` kept; other keys are not looked at.

    Raises AttributeError, KeyError, TypeError or ValueError for anything else.
    """
    return FrozenAttempt(**_frozen_fields(document))


def _frozen_fields(document: Any) -> dict[str, Any]:
    return {
        "attempt_id": _text(document["attempt_id"]),
        "generation": _text(document["generation"]),
        "baseline": _text(document["baseline"]) if document["baseline"] is not None else None,
        "isolation": dict(document["isolation"]),
        "model_id": _text(document["model_id"]),
        "score_format": _text(document["score_format"]),
        "scored": _text(document["scored"]),
        "scorer": command_from_json(document["scorer"]),
        "workspace_device": _number(document["workspace_device"]),
        "workspace_inode": _number(document["workspace_inode"]),
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _path(value: object) -> Path:
    return Path(path_from_json(_text(value)).decode("utf-8", "surrogateescape"))


def _exchange(value: object) -> Path:
    """Return a path that may be removed with all beneath it: one that only we give a name to."""
    path = _path(value)
    if not path.is_absolute() or not _EXCHANGE.fullmatch(path.name):
        raise ValueError(f"{value!r} is no exchange directory of ours")
    return path


def _live_to_json(live: LivePath) -> dict[str, str | None]:
    inside = path_to_json(live.inside) if live.inside is not None else None
    return {"path": path_to_json(live.path), "inside": inside}


def _live(value: Any) -> LivePath:
    inside = value["inside"]
    return LivePath(
        _path(value["path"]),
        AgentPath(path_from_json(_text(inside))) if inside is not None else None,
    )


def command_to_json(command: FrozenCommand) -> dict[str, object]:
    """Return a frozen command as generation.json and attempt.json keep it.

    Words are bytes: what is not printable ASCII, and `%`, is percent-encoded.
    """
    files = {_word_to_json(path): digest for path, digest in command.files.items()}
    return {"argv": list(map(_word_to_json, command.argv)), "files": files}


def command_from_json(value: Any) -> FrozenCommand:
    """Return the command that `command_to_json` kept.

    Raises AttributeError, KeyError or TypeError for anything else.
    """
    files = {_word(name): _text(digest) for name, digest in value["files"].items()}
    return FrozenCommand(tuple(map(_word, value["argv"])), files)


def _word_to_json(word: str) -> str:
    return quote_from_bytes(os.fsencode(word), safe=_READABLE)


def _word(value: object) -> str:
    return os.fsdecode(unquote_to_bytes(_text(value)))
