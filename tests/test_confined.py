"""A patch that a scorer runs confined: what it sees, what it cannot do, what comes back."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import pytest

from tests.machine import landlock_abi, needs
from tests.someone import PLAIN, ROOT, common_ground, plain_python, run_python

if TYPE_CHECKING:
    import subprocess

pytestmark = [
    needs("linux", "landlock"),
    pytest.mark.skipif(plain_python() is None, reason="machine lacks: a Python for every user"),
]
OUTER: Final = [
    pytest.param("none", True, id="plain-none"),
    pytest.param("landlock", True, id="plain-landlock"),
    pytest.param("bwrap", True, id="plain-bwrap", marks=needs("bwrap")),
    pytest.param("bwrap+landlock", True, id="plain-bwrap+landlock", marks=needs("bwrap")),
    pytest.param("none", False, id="root-none", marks=needs("root")),
    pytest.param("landlock", False, id="root-landlock", marks=needs("root")),
]


def confine(
    tier: str, script: str, *, flags: str = "-", plain: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell script confined, by a scorer in a tier; `$B` is the scorer's directory."""
    with common_ground(PLAIN if plain else None) as base:
        words = (flags, "/bin/sh", "-c", f"B={base}; {script}")
        return run_python(ROOT / "tests/confiner.py", tier, str(base), *words, plain=plain)


@pytest.mark.parametrize(("tier", "plain"), OUTER)
def test_a_patch_has_nothing_to_forge_a_score_with(tier: str, *, plain: bool) -> None:
    """No score directory, no variable, no key, whatever tier the scorer is in."""
    script = (
        "env | grep -E 'SCORE|KEY|nonce|HOME='; cat $B/score/score $B/home/key; "
        "echo forged > $B/score/score; rm $B/score/score; mv $B/score $B/gone; cat code; exit 7"
    )
    done = confine(tier, script, plain=plain)
    home, code = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "confined-" in home
    assert code == "code"
    assert "nonce\n" not in done.stdout
    assert "\nkey" not in done.stdout
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize(("tier", "plain"), OUTER)
def test_the_tree_can_be_written_only_if_asked(tier: str, *, plain: bool) -> None:
    """HOME and TMPDIR always; the tree with --allow-write."""
    script = "echo 1 > $HOME/f && echo 1 > $TMPDIR/f && echo own; echo 1 > new && echo tree"
    assert confine(tier, script, plain=plain).stdout.splitlines()[0] == "own"
    assert "tree" not in confine(tier, script, plain=plain).stdout.splitlines()
    assert confine(tier, script, plain=plain, flags="w").stdout.split() == ["own", "tree"]


@pytest.mark.parametrize("tier", ["none", "landlock"])
def test_the_network_is_off_unless_asked(tier: str) -> None:
    """A connection to a server outside is refused, or made with --network on."""
    if landlock_abi() < 4:
        pytest.skip("machine lacks: Landlock ABI 4")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        script = f'exec {plain_python()} -c "{code}"'
        assert confine(tier, script).returncode == 1
        done = confine(tier, script, flags="n")
        assert done.returncode == 0, done.stdout


def test_the_scorer_is_out_of_reach() -> None:
    """Its memory, environment and signals are not the patch's."""
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep API_KEY;"
        "kill -0 $PPID || echo refused"
    )
    done = confine("landlock", script)
    assert "API_KEY" not in done.stdout
    if landlock_abi() >= 6:
        assert "refused" in done.stdout


def test_nothing_that_the_patch_started_outlives_it() -> None:
    """A daemon in a session of its own is dead when the status comes back."""
    done = confine("landlock", "setsid sh -c 'sleep 60' & echo $! > $HOME/pid; cat $HOME/pid")
    pid = done.stdout.split()[0]
    assert done.returncode == 0
    assert not os.path.exists(f"/proc/{pid}")


def test_the_time_limit_is_told_as_timeout_tells_it() -> None:
    """A patch that sleeps is stopped; status 124."""
    assert confine("none", "sleep 60", flags="t").returncode == 124


def test_a_signal_is_told_as_a_shell_tells_it() -> None:
    """128 and its number."""
    assert confine("landlock", "kill -9 $$").returncode == 137


def test_output_is_cut() -> None:
    """A patch cannot flood the scorer: 16 MiB, and the rest is dropped."""
    done = confine("landlock", "head -c 20000000 /dev/zero | tr '\\0' x")
    assert len(done.stdout) == 16 * 1024 * 1024
    assert done.returncode == 0


def test_a_directory_that_holds_the_score_is_refused() -> None:
    """--allow-write cannot give away what confined is there to hide."""
    refused = confine("none", "true", flags="s")
    assert refused.returncode == 78
    assert "score directory" in refused.stderr
