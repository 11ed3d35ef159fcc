"""Run a patch from within a scorer: nested, and without what could forge the score."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.environment import child_environment
from attempt_runner.isolate import Room, enclose
from attempt_runner.probe import choose
from attempt_runner.status import status_pipe
from attempt_runner.tryout import Ground
from bootstrap.errors import ConfigurationError, IsolationError
from bootstrap.freeze import freeze_command
from bootstrap.processes import MARKER_VARIABLE, Child, Limits, run_child
from bootstrap.reaper import clear_descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attempt_runner.isolate import Isolation
    from bootstrap.signals import SignalInbox

OUTPUT_LIMIT: Final = 16 * 1024 * 1024  # bytes that are passed on to the scorer
TIMED_OUT: Final = 124  # as timeout(1)
_GRACE: Final = 5.0
_CLEAR_SECONDS: Final = 30.0
_PRIVATE: Final = 0o700
_SEEN: Final = ("TREE_DIR", "DIFF_FILE", "PROMPT_FILE")  # what a scorer may show to a patch


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What a scorer asks for: real paths; `timeout` in seconds."""

    argv: tuple[str, ...]
    cwd: Path
    writable: tuple[Path, ...]
    network: bool
    timeout: float


def run_confined(asked: Confinement, environ: Mapping[str, str], inbox: SignalInbox) -> int:
    """Run a command without score directory, the scorer's variables, HOME, or network.

    Its output, standard error included, goes to our standard output, cut to OUTPUT_LIMIT;
    its status is returned, 128 + n for a signal, 124 if the time was over. Nothing that it
    started is left. The tier is the strongest that nests where we are: bubblewrap in
    bubblewrap or in none, a Landlock layer in any. Raises IsolationError (78) where none
    does, or its set-up failed.
    """
    with _private_directory(environ) as private:
        room = _room(asked, environ, private)
        # Which control sockets are in reach was decided with the scorer's own tier.
        ground = Ground(state_root=private / "guarded", scratch=private, sockets=())
        isolation = choose("auto", room, ground, frozenset({"content", "reads"}))
        return _run(asked, isolation, room, _environment(environ, private), inbox)


def _run(
    asked: Confinement,
    isolation: Isolation,
    room: Room,
    env: Mapping[str, str],
    inbox: SignalInbox,
) -> int:
    argv = freeze_command(
        asked.argv, path=env["PATH"], cwd=asked.cwd, arguments_from_cwd=False
    ).argv
    with status_pipe() as status:
        launch = enclose(isolation, room, argv, status.ends)
        child = Child(launch.argv, asked.cwd, env, output=1, pass_fds=launch.pass_fds)
        try:
            exited = run_child(
                child, Limits(asked.timeout, _GRACE, OUTPUT_LIMIT), inbox, lambda _process: None
            )
        finally:
            clear_descendants(time.monotonic() + _CLEAR_SECONDS)
        start = status.outcome(launch, exited.code)
    if exited.timed_out:
        return TIMED_OUT
    if start.proof != "yes":
        raise IsolationError(
            f"isolation: {isolation.tier}",
            expected="the command to be started in it",
            found=start.cause,
            remedy="see the output above",
        )
    return exited.status


def _room(asked: Confinement, environ: Mapping[str, str], private: Path) -> Room:
    hidden = [private / "guarded"]
    if score := environ.get("SCORE_FILE"):
        hidden.append(Path(os.path.realpath(score)).parent)
    if home := environ.get("HOME"):
        hidden.append(Path(os.path.realpath(home)))
    shown = [Path(os.path.realpath(environ[name])) for name in _SEEN if environ.get(name)]
    named = [Path(os.path.realpath(word)) for word in asked.argv if os.path.isfile(word)]
    readable = [asked.cwd, *shown, *named]
    for path in (*asked.writable, *readable):
        _require_apart(path, hidden)
    return Room(
        writable=(*asked.writable, private / "home", private / "tmp"),
        readable=tuple(readable),
        hidden=tuple(path for path in hidden if path.is_dir()),
        network=asked.network,
    )


def _require_apart(path: Path, hidden: list[Path]) -> None:
    for secret in hidden:
        if path.is_relative_to(secret) or secret.is_relative_to(path):
            raise ConfigurationError(
                f"path {path}",
                expected="one apart from the score directory and the scorer's HOME",
                found=f"{secret}, one of which holds the other",
                remedy="run the command in {tree}, or in a directory beneath TMPDIR",
            )


def _environment(environ: Mapping[str, str], private: Path) -> dict[str, str]:
    path = environ.get("PATH", os.defpath)
    marker = (MARKER_VARIABLE,) if MARKER_VARIABLE in environ else ()
    return child_environment(environ, marker, path=path, home=private / "home", tmp=private / "tmp")


@contextmanager
def _private_directory(environ: Mapping[str, str]) -> Iterator[Path]:
    parent = Path(os.path.realpath(environ.get("TMPDIR") or "/tmp"))  # noqa: S108 - the default
    private = parent / f"confined-{secrets.token_hex(16)}"
    try:
        os.mkdir(private, _PRIVATE)
        for name in ("guarded", "home", "tmp"):
            os.mkdir(private / name, _PRIVATE)
    except OSError as error:
        raise ConfigurationError(
            f"directory {parent}",
            expected="one that can be written",
            found=os.strerror(error.errno or 0),
            remedy="set TMPDIR to one",
        ) from error
    try:
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)
