"""Git as a trusted tool on hostile bytes: a git directory of ours, and nobody's configuration.

No repository is ever discovered. Git is told a directory that this module wrote, whose
`info/attributes` stand above every `.gitattributes` in a work tree, so that no file there
converts a byte or names a program. The environment is a list, not the caller's.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

SEARCH: Final = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
SHORT: Final = 4096  # bytes of git's standard error, which quotes the patch, or of an answer

_HEAD: Final = "ref: refs/heads/none\n"
_CONFIG: Final = """\
[core]
	repositoryFormatVersion = {version}
	bare = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	quotePath = true
	autocrlf = false
	compression = 1
	hooksPath = /dev/null
	fsmonitor = false
	attributesFile = /dev/null
	excludesFile = /dev/null
[gc]
	auto = 0
"""
# Git takes a directory of version 0 that names an extension for no repository at all, and
# would then read the attributes of the work tree instead of ours.
_SHA256: Final = "[extensions]\n\tobjectFormat = sha256\n"
# The diff attribute is unspecified, not set: set, it forces every binary file to text.
# An encoding is unspecified too: git dies of a false one.
_ATTRIBUTES: Final = (
    "* -text !eol !crlf -filter -ident !diff -merge !working-tree-encoding -whitespace\n"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one run of git may use. Sizes in bytes; only the time is bounded off Linux."""

    seconds: float = 600
    file_size: int = 2 << 30  # of each file written: a binary delta of 1 kB can ask for more
    memory: int = 6 << 30  # address space: git holds both sides of a binary change


BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Ended:
    """How git ended: its code, negative for a signal, and the start of its standard error."""

    code: int
    timed_out: bool
    message: bytes

    @property
    def failed(self) -> bool:
        """Tell whether git did anything but end by itself with status 0."""
        return self.timed_out or self.code != 0

    @property
    def told(self) -> str:
        """One line on the failure, not escaped: what git said, or what ended it."""
        if self.timed_out:
            return "no end within the time limit"
        if self.code < 0:
            return f"an end by signal {-self.code}"
        said = os.fsdecode(self.message).strip().replace("\n", "; ")
        return said or f"exit status {self.code} and no message"


@dataclass(frozen=True, slots=True)
class Git:
    """A git program, the git directory that it is told to use, and a private one to write in."""

    program: str
    directory: Path
    home: Path

    def run(
        self,
        arguments: Sequence[str],
        *,
        work_tree: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        bounds: Bounds = BOUNDS,
    ) -> Ended:
        """Run git in `work_tree` and wait for its end, however it ends. Raises OSError.

        It is its own session: a signal of the terminal is for the runner to answer.
        """
        with tempfile.TemporaryFile(dir=self.home) as errors:
            code = self._wait(
                subprocess.Popen(
                    [self.program, *arguments],
                    cwd=work_tree,
                    env=self._environment(work_tree),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=errors,
                    start_new_session=True,
                ),
                bounds,
            )
            return Ended(code or 0, code is None, _start_of(errors))

    def ask(self, arguments: Sequence[str], *, work_tree: Path) -> tuple[Ended, str]:
        """Run git for one short line of output, an object's name or a path. Raises OSError."""
        with tempfile.TemporaryFile(dir=self.home) as answer:
            ended = self.run(arguments, work_tree=work_tree, stdout=answer.fileno())
            return ended, os.fsdecode(_start_of(answer)).removesuffix("\n")

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], bounds: Bounds) -> int | None:
        try:
            _confine(process.pid, bounds)
            return process.wait(bounds.seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()  # does nothing to a process that was waited for
            process.wait()

    def _environment(self, work_tree: Path) -> dict[str, str]:
        return {
            "PATH": SEARCH,
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home),
            "TMPDIR": str(self.home),
            "LC_ALL": "C",
            "GIT_DIR": str(self.directory),
            "GIT_WORK_TREE": str(work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }


def find_git(search: str = SEARCH) -> str:
    """Return the path of git on a fixed search path. Raises ConfigurationError."""
    program = shutil.which("git", path=search)
    if program is None:
        raise ConfigurationError(
            "git",
            expected=f"a program on {search}",
            found="none",
            remedy="install git there",
        )
    return program


def make_git(
    program: str, directory: Path, *, objects: Path | None = None, object_format: str = "sha1"
) -> Git:
    """Write an empty git directory of ours at a new path, which must not exist.

    `objects` is the object directory of a trusted repository, to be read beside its own.
    Raises OSError.
    """
    for made in (".", "objects/info", "refs", "info"):
        (directory / made).mkdir(mode=0o700, parents=made != ".")
    plain = object_format == "sha1"
    config = _CONFIG.format(version=0 if plain else 1) + ("" if plain else _SHA256)
    (directory / "HEAD").write_text(_HEAD, encoding="ascii")
    (directory / "config").write_text(config, encoding="ascii")
    (directory / "info/attributes").write_text(_ATTRIBUTES, encoding="ascii")
    if objects:
        (directory / "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
    return Git(program, directory, directory)


def _confine(pid: int, bounds: Bounds) -> None:
    # Set from outside: git reads for long before it could reach one of these, and a limit
    # that is set late holds from then on.
    if sys.platform != "linux":
        return
    for kind, most in (
        (resource.RLIMIT_FSIZE, bounds.file_size),
        (resource.RLIMIT_AS, bounds.memory),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.prlimit(pid, kind, (most, most))


def _start_of(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(SHORT)
