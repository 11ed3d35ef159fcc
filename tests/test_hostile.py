"""The table of SECURITY.md, row by row: what each tier stops, and what it does not."""

from __future__ import annotations

import json
import re
import secrets
from functools import cache
from typing import Final

import pytest

from bootstrap.cells import open_cell
from tests.machine import landlock_abi, needs
from tests.someone import AGENT, PLAIN, ROOT, common_ground, plain_python, run_python

# A worker of pytest has threads; the runner, which forks the same way, has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
AGENTS: Final = tuple(sorted(path.stem for path in (ROOT / "tests/hostile").glob("[a-z]*.py")))
SURVIVORS: Final = {"fork_at_exit", "rewrite_score_for_ever"}
COLUMNS: Final = ("none", "landlock", "bwrap", "bwrap+landlock", "uid", "uid+landlock")
SCOPED: Final = {"kill_runner", "ask_abstract_helper"}  # Landlock stops these from ABI 6 on
STOPPED: Final = re.compile(r"^(\w*Error|OSError): ")


def read_table() -> dict[str, dict[str, str]]:
    """Return agent to tier to cell, from the one table of SECURITY.md of hostile agents."""
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    start = next(number for number, row in enumerate(rows) if row[1] == "what it tries")
    found = {}
    for row in rows[start + 2 :]:
        found[row[0]] = dict(zip(rows[start][2:], row[2:], strict=True))
    return found


def needs_tier(tier: str) -> tuple[str, ...]:
    """Return what a machine must have for a tier."""
    parts = {"landlock": "landlock", "bwrap": "bwrap", "uid": "root"}
    return ("linux", *(part for name, part in parts.items() if name in tier))


def cases() -> list[object]:
    """Return each tier as root has it, and as a plain user has it."""
    listed: list[object] = []
    for tier in COLUMNS:
        root = needs(*needs_tier(tier), "root")
        listed.append(pytest.param(tier, False, marks=root, id=f"root-{tier}"))
        if "uid" not in tier:
            plain = needs(*needs_tier(tier))
            listed.append(pytest.param(tier, True, marks=plain, id=f"plain-{tier}"))
    return listed


def outcome(name: str, result: dict[str, object]) -> bool:
    """Tell whether an agent got what it came for, by what was seen from outside where it is."""
    if name in SURVIVORS:
        return result["left"] != 0
    if name == "kill_runner":
        return bool(result["killed"])
    if name == "leave_shared_memory":
        return bool(result["shared"])
    return bool(result["worked"])


def expected(cell: str, name: str, tier: str, *, plain: bool) -> bool | None:
    """Turn a cell of the table into whether the agent works here; None if that depends."""
    if name == "leave_cgroup" and tier == "none" and (plain or not can_make_cgroups()):
        return None
    if name in SCOPED and "landlock" in tier and landlock_abi() < 6:
        return None
    return {"stopped": False, "**works**": True, "**works** for root": not plain}[cell]


@cache
def can_make_cgroups() -> bool:
    """Tell whether a sibling cgroup can be made here."""
    with open_cell(secrets.token_hex(16)) as cell:
        return cell is not None


@pytest.mark.parametrize(("tier", "plain"), cases())
def test_agents_do_what_the_table_says(tier: str, *, plain: bool) -> None:
    """Every agent is stopped where the table says so, and works where it says so."""
    if plain and plain_python() is None:
        pytest.skip("machine lacks: a Python for every user")
    needs_user = not plain and tier not in {"none", "landlock"}
    user = ("--user", str(AGENT)) if needs_user else ()
    with common_ground(PLAIN if plain else None) as base:
        done = run_python(ROOT / "tests/enclosure.py", tier, str(base), *user, *AGENTS, plain=plain)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    table = read_table()
    for name in AGENTS:
        wanted = expected(table[name][tier], name, tier, plain=plain)
        if wanted is not None:
            assert outcome(name, results[name]) == wanted, (name, results[name])
        if wanted is False and name not in SURVIVORS | {"kill_runner"}:
            assert_stopped_by_the_kernel(name, results[name])


def assert_stopped_by_the_kernel(name: str, result: dict[str, object]) -> None:
    """Assert that a refused call stopped it, not a mistake in it; and the state is as it was."""
    assert result["start"] == "yes", name
    assert not result["state_changed"], name
    assert result["worked"] or STOPPED.match(str(result["said"])), (name, result["said"])


def test_the_table_has_every_agent() -> None:
    """No agent lacks a row, and no row lacks its agent."""
    assert sorted(read_table()) == list(AGENTS)
