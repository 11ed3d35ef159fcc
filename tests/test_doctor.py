"""What `doctor` says of this machine agrees with what `run` would take."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from attempt_runner.cli.app import COMMANDS
from attempt_runner.isolate import PROMISES, STRONGEST_FIRST
from tests.machine import landlock_abi, needs
from tests.someone import AGENT, common_ground

pytestmark = [
    needs("linux"),
    pytest.mark.skipif("doctor" not in COMMANDS, reason="machine lacks: the command"),
]


def doctor(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a scratch directory of its own."""
    with common_ground() as base:
        argv = (sys.executable, "-I", "-m", "attempt_runner", "doctor", "--scratch-dir", str(base))
        return subprocess.run((*argv, *flags), capture_output=True, text=True, check=False)


def test_every_tier_is_judged_promise_by_promise() -> None:
    """Each tier is there; one that is not to be had says why; the facts are the machine's."""
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["tiers"]) == set(STRONGEST_FIRST)
    for tier in found["tiers"].values():
        assert tier.get("why") or set(tier["promises"]) == set(PROMISES)
    assert found["facts"]["landlock_abi"] == landlock_abi()
    assert found["facts"]["uid"] == os.geteuid()
    assert "sandbox" in found["notes"][0]


@needs("root", "bwrap", "landlock")
def test_root_learns_what_another_user_would_bring() -> None:
    """Without a user the strongest tiers are not offered; with one they keep all."""
    bare = json.loads(doctor("--json").stdout)
    assert not any(bare["tiers"][tier]["available"] for tier in ("bwrap", "uid", "uid+landlock"))
    found = json.loads(doctor("--json", "--agent-user", str(AGENT)).stdout)
    assert found["auto"] == "bwrap+landlock"
    assert all(found["tiers"]["bwrap+landlock"]["promises"].values())


def test_the_table_has_a_line_for_each_tier() -> None:
    """For people: one row a tier, strongest first, then the facts."""
    done = doctor()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == list(STRONGEST_FIRST)
    assert any(line.startswith("auto ") for line in lines)


def test_nothing_stays_behind() -> None:
    """The directories of the probes are gone."""
    with common_ground() as base:
        argv = (sys.executable, "-I", "-m", "attempt_runner", "doctor", "--scratch-dir", str(base))
        subprocess.run(argv, capture_output=True, check=True)
        assert list(base.iterdir()) == []
