"""Pack a wheel of ours and what it depends on into one file that a bare python3 runs.

    build_pyz.py WHEEL TARGET

The dependencies are those of the environment that runs this, as tested. One with a compiled
part is refused. The same wheel and environment give the same bytes.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN: Final = Path(__file__).with_name("pyz_main.py")
SHEBANG: Final = b"#!/usr/bin/env -S python3 -I\n"
EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
COMPILED: Final = (".so", ".pyd", ".dylib")


def requirements_of(wheel: zipfile.ZipFile) -> list[str]:
    """Return the wheel's own list of requirements."""
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode().partition("\n\n")[0]
    return re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """Return the installed distributions that requirements bring, extras left out, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements)
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        one = distribution(wanted.name)
        if one.version not in wanted.specifier:
            sys.exit(f"build_pyz: {wanted}: expected it installed, got {one.version}")
        if one.name not in found:
            found[one.name] = one
            waiting += one.requires or []
    return found


def files_of(one: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield a distribution's files: no commands, no bytecode, no record of this environment."""
    for path in one.files or ():
        local = path.name in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
        if ".." in path.parts or "__pycache__" in path.parts or local:
            continue
        if path.suffix in COMPILED:
            sys.exit(f"build_pyz: {one.name}: expected pure Python, got {path}")
        yield path.as_posix(), path.read_binary()


def pack(target: Path, files: dict[str, bytes]) -> None:
    """Write the archive: sorted, without times, executable."""
    with target.open("wb") as out:
        out.write(SHEBANG)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted(files):
                archive.writestr(_entry(name), files[name])
    target.chmod(0o755)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def main() -> None:
    """Build the archive that the arguments name."""
    source, target = map(Path, sys.argv[1:])
    files = {"__main__.py": MAIN.read_bytes()}
    with zipfile.ZipFile(source) as wheel:
        files |= {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
        packed = closure(requirements_of(wheel))
    for one in packed.values():
        files |= dict(files_of(one))
    pack(target, files)
    names = (f"{name} {one.version}" for name, one in sorted(packed.items()))
    print(f"{target}: {os.path.getsize(target)} bytes, with {', '.join(names)}")


if __name__ == "__main__":
    main()
