"""Inspect's `.eval` archive: a zip whose members are JSON, compressed with Zstandard.

zipfile reads Zstandard from Python 3.14 on; before, a backport of it does.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Final

from attempt_runner.scores.fields import load_object
from attempt_runner.scores.score import MAX_SCORE_BYTES, NoScoreError, wrong

if sys.version_info >= (3, 14):
    import zipfile

    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError, zipfile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attempt_runner.scores.fields import Table

MAX_TOTAL_BYTES: Final = 16 * MAX_SCORE_BYTES  # of all members; one is held at a time
MAX_MEMBERS: Final = 100_000

_DAMAGE: Final = (
    zipfile.BadZipFile,
    ZstdError,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,  # a compression that Inspect does not use
    OSError,
    OverflowError,
    RuntimeError,  # an encrypted member
    ValueError,
)


def documents(data: bytes) -> Iterator[Table]:
    """Yield the log's header, then each sample, one held in memory at a time.

    Raises NoScoreError for an archive that is damaged, that names a member twice, that is
    larger than the limits, or that has no header: Inspect writes it last.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = _names(archive)
            for name in names:
                yield load_object(_member(archive, name), name)
    except _DAMAGE as error:
        raise wrong("eval", "a whole zip archive", f"{type(error).__name__}: {error}") from error


def _names(archive: zipfile.ZipFile) -> list[str]:
    members = archive.infolist()
    names = [member.filename for member in members]
    if len(names) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_TOTAL_BYTES:
        limits = f"at most {MAX_MEMBERS} members and {MAX_TOTAL_BYTES} bytes"
        raise wrong("eval", limits, "more")
    if len(set(names)) != len(names):
        raise wrong("eval", "each member once", "one repeated")
    if "header.json" not in names:
        raise NoScoreError("incomplete", "eval: expected header.json, got a run without its end")
    samples = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
    return ["header.json", *samples]


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    # The declared size is the writer's word, so what comes out is bounded as well.
    with archive.open(name) as member:
        data = member.read(MAX_SCORE_BYTES + 1)
    if len(data) > MAX_SCORE_BYTES:
        raise wrong(f"eval: {name[:100]}", f"at most {MAX_SCORE_BYTES} bytes", "more")
    return data
