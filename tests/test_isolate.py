"""What is started in place of a command, tier by tier, and how a failed set-up is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.isolate import (
    PROMISES,
    STRONGEST_FIRST,
    Isolation,
    Room,
    Tier,
    User,
    enclose,
    evidence_of,
)
from attempt_runner.status import Launch, Start, Status, status_pipe
from tests.machine import needs
from tests.someone import AGENT, ROOT, plain_python

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDS: Final = Status(7, 8, 9)
COMMAND: Final = ("/bin/sh", "-c", "true")


def isolation(tier: Tier) -> Isolation:
    """Return a tier as if it had been probed."""
    return Isolation(
        tier=tier,
        python=plain_python() or "python3",
        bwrap="/usr/bin/bwrap",
        promises=dict.fromkeys(PROMISES, tier != "none"),
        notes={},
        cleanup="subreaper",
    )


def pairs(argv: Sequence[str], flag: str) -> list[str]:
    """Return the values of a flag in an argv."""
    return [argv[at + 1] for at, word in enumerate(argv) if word == flag]


def test_none_changes_nothing() -> None:
    """Without isolation the command is started as it is."""
    assert enclose(isolation("none"), Room(writable=()), COMMAND, ENDS) == Launch(COMMAND)


@pytest.mark.parametrize("tier", STRONGEST_FIRST)
def test_the_command_comes_last_and_unchanged(tier: Tier, tmp_path: Path) -> None:
    """Whatever a word of the command looks like, it stands after the last `--`."""
    room = Room(writable=(tmp_path,), user=User(1, 1))
    command = ("/bin/echo", "--", "--bind", "--user", "")
    launch = enclose(isolation(tier), room, command, ENDS)
    assert launch.argv[-6:] == ("--", *command)
    assert set(launch.pass_fds) <= set(ENDS)


def test_each_reporter_has_a_descriptor_of_its_own() -> None:
    """Each closes its own before the next is started, so that none is left for the command."""
    argv = enclose(isolation("bwrap+landlock"), Room(writable=(), user=User(1, 1)), COMMAND, ENDS)
    assert pairs(argv.argv, "--status") == ["7", "9"]
    assert pairs(argv.argv, "--json-status-fd") == ["8"]
    plain = enclose(isolation("bwrap"), Room(writable=()), COMMAND, ENDS)
    assert plain.pass_fds == (8,)


def test_bubblewrap_hides_after_it_shows(tmp_path: Path) -> None:
    """The state's cover is the last mount, so that nothing bound before uncovers it."""
    state, outer, inner = tmp_path / "state", tmp_path / "w", tmp_path / "w" / "in"
    state.mkdir()
    room = Room(writable=(inner, outer), hidden=(state,))
    argv = enclose(isolation("bwrap"), room, COMMAND, ENDS).argv
    assert pairs(argv, "--bind") == [str(outer), str(inner)]
    end = argv.index("--", argv.index("--ro-bind"))
    assert argv[end - 4 : end] == ("--tmpfs", str(state), "--remount-ro", str(state))


def test_the_network_is_left_out_by_a_namespace_or_by_landlock(tmp_path: Path) -> None:
    """Without network bubblewrap unshares it, and Landlock is told to stop TCP."""
    room = Room(writable=(tmp_path,), network=False)
    assert "--unshare-net" in enclose(isolation("bwrap"), room, COMMAND, ENDS).argv
    argv = enclose(isolation("landlock"), room, COMMAND, ENDS).argv
    assert pairs(argv, "--landlock") == ["off"]
    assert (
        "--unshare-net"
        not in enclose(isolation("bwrap"), replace(room, network=True), COMMAND, ENDS).argv
    )


def test_evidence_counts_a_promise_only_if_every_child_had_it() -> None:
    """An isolated agent beside a bare scorer keeps nothing."""
    strong, bare = isolation("bwrap"), isolation("none")
    assert evidence_of(strong, strong)["content"] is True
    mixed = evidence_of(strong, bare)
    assert (mixed["agent"], mixed["scorer"]) == ("isolated", "not isolated")
    assert not any(mixed[name] for name in PROMISES)
    assert evidence_of(None, strong)["agent"] == "absent"


def _launch(tier: Tier, room: Room, argv: tuple[str, ...]) -> Start:
    with status_pipe() as status:
        launch = enclose(isolation(tier), room, argv, status.ends)
        done = subprocess.run(
            launch.argv, pass_fds=launch.pass_fds, capture_output=True, check=False, cwd="/"
        )
        return status.outcome(launch, done.returncode)


@needs("landlock")
@pytest.mark.parametrize("code", [0, 1, 125])
def test_a_command_that_ran_counts_as_started(code: int) -> None:
    """Whatever status it chose, that of a failed shim included."""
    assert _launch("landlock", Room(writable=()), ("/bin/sh", "-c", f"exit {code}")).proof == "yes"


@needs("landlock")
def test_a_shim_that_failed_is_certain(tmp_path: Path) -> None:
    """A missing directory is told, and the command has not run."""
    room = Room(writable=(tmp_path / "missing",))
    start = _launch("landlock", room, ("/usr/bin/touch", str(tmp_path / "ran")))
    assert start.proof == "no"
    assert "missing" in start.cause
    assert not (tmp_path / "ran").exists()


@needs("bwrap", "plain-user")
@pytest.mark.parametrize("tier", ["bwrap", "bwrap+landlock"])
def test_a_mount_that_failed_is_not_the_commands_status(tier: Tier, tmp_path: Path) -> None:
    """Bubblewrap exits 1, as the command might; without its word it does not count as a run."""
    assert _launch(tier, Room(writable=()), ("/bin/sh", "-c", "exit 1")).proof == "yes"
    assert _launch(tier, Room(writable=(tmp_path / "missing",)), COMMAND).proof != "yes"


@needs("bwrap", "root")
@pytest.mark.parametrize("tier", ["bwrap", "bwrap+landlock"])
def test_the_same_holds_beneath_another_user(tier: Tier, tmp_path: Path) -> None:
    """The user switch in front of bubblewrap changes nothing about it."""
    room = Room(writable=(), user=User(AGENT, AGENT))
    assert _launch(tier, room, ("/bin/sh", "-c", "exit 1")).proof == "yes"
    missing = replace(room, writable=(tmp_path / "missing",))
    assert _launch(tier, missing, COMMAND).proof != "yes"
    nobody = replace(room, user=User(2**33, 1))
    assert _launch(tier, nobody, COMMAND).proof == "no"


@needs("bwrap", "landlock", "root")
def test_a_command_in_bubblewrap_holds_no_descriptor_of_ours() -> None:
    """What would let it claim that it never ran is closed before it starts."""
    shell = 'test "$(ls /proc/self/fd | wc -l)" -le 4'  # ls itself opens the fourth
    room = Room(writable=(), user=User(AGENT, AGENT))
    for tier in ("bwrap", "bwrap+landlock"):
        with status_pipe() as status:
            launch = enclose(isolation(tier), room, ("/bin/sh", "-c", shell), status.ends)
            done = subprocess.run(launch.argv, pass_fds=launch.pass_fds, check=False, cwd="/")
        assert done.returncode == 0


@pytest.mark.parametrize(
    "tier",
    [
        pytest.param("landlock", marks=needs("landlock")),
        pytest.param("bwrap", marks=needs("bwrap")),
        pytest.param("bwrap+landlock", marks=needs("bwrap", "landlock")),
        pytest.param("uid", marks=needs("root")),
    ],
)
def test_a_runner_that_is_killed_takes_the_command_along(tier: Tier) -> None:
    """SIGKILL gives it no chance to clean up: the kernel does."""
    code = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[1]);"
        "from tests.test_isolate import *\n"
        "user = User(AGENT, AGENT) if os.geteuid() == 0 else None\n"
        "with status_pipe() as status:\n"
        "    shell = ('/bin/sh', '-c', 'echo up; exec sleep 60')\n"
        "    room = Room(writable=(), user=user)\n"
        "    launch = enclose(isolation(sys.argv[2]), room, shell, status.ends)\n"
        "    subprocess.run(launch.argv, pass_fds=launch.pass_fds, cwd='/')\n"
    )
    argv = (sys.executable, "-c", code, str(ROOT), tier)
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"up\n"
        runner.kill()
        assert runner.stdout.read() == b""  # nobody holds the pipe any more


def test_an_outcome_never_waits() -> None:
    """A pipe that somebody still holds, full or garbled, is read in bounded time."""
    with status_pipe() as status:
        held = os.dup(status.ends.shim)
        os.write(held, b"\xff{]\n" * 1000)
        launch = Launch(COMMAND, reports_exit=True)
        assert status.outcome(launch, 1).proof == "unknown"
        os.close(held)
