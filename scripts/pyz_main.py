"""Start attempt-runner from its archive; `scripts/build_pyz.py` puts this in as `__main__.py`.

Some files of ours are started by path, and a path within an archive is none to the kernel. So
each run unpacks ours, and only ours, into a directory that it makes anew and removes at its end:
there is no cache that somebody could edit between two runs. A run that is killed leaves the
directory behind, and no later one reads it.
"""

import os
import shutil
import sys
import tempfile
import zipfile

OURS = ("attempt_runner/", "bootstrap/")
CONFIGURATION = 78  # sysexits.h, EX_CONFIG


def refuse(what: str, expected: str, got: str) -> None:
    """Exit as on any refused configuration."""
    print(f"attempt-runner: {what}: expected {expected}, got {got}", file=sys.stderr)
    sys.exit(CONFIGURATION)


def unpack(place: str) -> None:
    """Write our files below a directory where other users may read them, and only read."""
    before = os.umask(0o022)
    try:
        with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
            archive.extractall(
                place, [name for name in archive.namelist() if name.startswith(OURS)]
            )
        os.chmod(place, 0o755)  # noqa: S103 - an agent's own user starts the shim in it
    finally:
        os.umask(before)


def main() -> None:
    """Run the command line on unpacked files, and return what it exits with."""
    if sys.version_info < (3, 11):
        refuse("Python", "3.11 or newer", sys.version.split()[0])
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - no other place, such as the cwd
    try:
        place = tempfile.mkdtemp(prefix="attempt-runner-", dir=parent)
    except OSError as error:
        refuse("TMPDIR", "a writable directory", str(error))
    owner = os.getpid()
    try:
        unpack(place)
        sys.dont_write_bytecode = True
        sys.path.insert(0, place)
        from attempt_runner.__main__ import main as run_command  # noqa: PLC0415 - unpacked just now

        run_command()
    finally:
        if os.getpid() == owner:  # a forked child may come by here, too
            shutil.rmtree(place, ignore_errors=True)


main()
