from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bootstrap.errors import WipeError
from bootstrap.files import AgentPath, Directory, open_directory
from bootstrap.wipe import TRASH_PREFIX, remove_trash, wipe
from tests.machine import needs
from tests.openers import Caller, both_openers
from tests.racer import racing
from tests.trees import make_wide, names_in, photograph
from tests.wiper import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs("linux")

ROUNDS = 150


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Directory]:
    """Open a workspace beside an outside that holds the same names."""
    for place in ("ws", "outside/scores/inner"):
        (tmp_path / place).mkdir(parents=True)
    for kept in ("outside/kept.json", "outside/scores/kept.json", "outside/scores/inner/kept.json"):
        (tmp_path / kept).write_text("kept")
    with open_directory(tmp_path / "ws") as workspace:
        yield workspace


def _wipe_or_refuse(call: Caller, workspace: Directory, path: bytes) -> bool:
    try:
        call(wipe, workspace, [AgentPath(path)])
    except WipeError:
        return False
    return True


@both_openers
def test_a_parent_that_is_swapped_for_a_link_leads_nowhere(call: Caller, ws: Directory) -> None:
    """While `ws/out` is now a directory and now a link, nothing outside is touched."""
    outside = ws.path.parent / "outside"
    before = photograph(outside)
    (ws.path / "out").mkdir()
    (ws.path / "link").symlink_to(outside)
    with open_directory(ws.path / "out") as out, racing(ws.path, "swap", "out", "link"):
        for _ in range(ROUNDS):
            os.makedirs(f"/proc/self/fd/{out.fd}/scores/inner", exist_ok=True)
            _wipe_or_refuse(call, ws, b"out/scores")
            assert photograph(outside) == before


@both_openers
def test_a_directory_inside_that_is_swapped_for_a_link_leads_nowhere(
    call: Caller, ws: Directory
) -> None:
    """While what lies in a score path is rebuilt, nothing outside is touched."""
    outside = ws.path.parent / "outside"
    before = photograph(outside)
    scores = ws.path / "scores"
    for _ in range(8):
        make_wide(scores, 500)
        (scores / "inner" / "inner").mkdir(parents=True)
        (scores / "link").symlink_to(outside / "scores")
        with racing(scores, "swap", "inner", "link"):
            _wipe_or_refuse(call, ws, b"scores")
        _wipe_or_refuse(call, ws, b"scores")
        remove_trash(ws, [AgentPath(b"scores")])
        assert names_in(ws.path) == set()
        assert photograph(outside) == before


@both_openers
def test_a_directory_that_is_filled_meanwhile_is_removed_or_refused(
    call: Caller, ws: Directory
) -> None:
    """A writer that stays alive cannot keep the wipe busy for ever, nor make it lie."""
    (ws.path / "scores").mkdir()
    with racing(ws.path / "scores", "fill"):
        _wipe_or_refuse(call, ws, b"scores")
    remove_trash(ws, [AgentPath(b"scores")])
    assert names_in(ws.path) == set()


@both_openers
def test_a_score_that_is_planted_again_is_found(call: Caller, ws: Directory) -> None:
    """A writer that is still alive is caught by the look-up after the wipe."""
    with (
        racing(ws.path, "plant", "scores"),
        pytest.raises(WipeError, match="there again; stop the process that writes it"),
    ):
        _wipe_many_times(call, ws, b"scores")


def _wipe_many_times(call: Caller, workspace: Directory, path: bytes) -> None:
    for _ in range(10_000):
        call(wipe, workspace, [AgentPath(path)])


def test_a_wipe_that_is_killed_leaves_trash_that_the_next_run_removes(ws: Directory) -> None:
    """After SIGKILL at any point the tree is whole, or out of sight, or gone."""
    make_wide(ws.path / "scores", 20_000)
    command = [sys.executable, "-m", "tests.wiper", str(ws.path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as wiper:
        while wiper.poll() is None and not _trash_in(ws.path):
            pass
        wiper.kill()
    assert wiper.returncode == -signal.SIGKILL
    assert remove_trash(ws, [AgentPath(b"scores")]) >= 1
    assert names_in(ws.path) in (set(), {b"scores"})  # killed before the rename


def _trash_in(directory: Path) -> set[bytes]:
    return {name for name in names_in(directory) if name.startswith(TRASH_PREFIX)}
