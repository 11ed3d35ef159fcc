"""A cgroup for one child: nothing in it outlives the block."""

from __future__ import annotations

import secrets
import subprocess
import sys

import pytest

from attempt_runner import inside
from bootstrap.cells import close_cell, find_cell, open_cell

# A worker of pytest has threads; the runner, which forks the same way, has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
TREE = "sleep 60 & setsid sleep 60 & env -i setsid sh -c 'sleep 60 & sleep 60' & echo up; sleep 60"


@pytest.fixture
def name() -> str:
    """Return a name that no other cgroup has."""
    return secrets.token_hex(16)


def test_every_kind_of_descendant_is_killed_at_once(name: str) -> None:
    """Background, new session, double fork with an empty environment: all are in the cgroup."""
    with open_cell(name, processes=100) as cell:
        if cell is None:
            pytest.skip("machine lacks: a version 2 cgroup that can be written")
        argv = (sys.executable, "-I", "-S", inside.__file__, "--cgroup", str(cell), "--")
        with subprocess.Popen((*argv, "sh", "-c", TREE), stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            assert find_cell(name) == cell
            close_cell(cell)
            assert child.stdout.read() == b""  # nobody holds the pipe any more
        assert find_cell(name) is None


def test_a_name_in_use_is_not_used_again(name: str) -> None:
    """Two children never share a cgroup."""
    with open_cell(name) as cell, open_cell(name) as other:
        if cell is None:
            pytest.skip("machine lacks: a version 2 cgroup that can be written")
        assert other is None


def test_closing_twice_is_no_error(name: str) -> None:
    """A cgroup that is gone is closed."""
    with open_cell(name) as cell:
        if cell is None:
            pytest.skip("machine lacks: a version 2 cgroup that can be written")
        close_cell(cell)
