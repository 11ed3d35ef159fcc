"""A cgroup for one child: nothing in it outlives the block."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attempt_runner import inside
from attempt_runner.cells import close_cell, is_cell, open_cell, own_cgroup

TREE = "sleep 60 & setsid sleep 60 & env -i setsid sh -c 'sleep 60 & sleep 60' & echo up; sleep 60"


def test_every_kind_of_descendant_is_killed_at_once() -> None:
    """Background, new session, double fork with an empty environment: all are in the cgroup."""
    with open_cell(processes=100) as cell:
        if cell is None:
            pytest.skip("machine lacks: a version 2 cgroup that can be written")
        argv = (sys.executable, "-I", "-S", inside.__file__, "--cgroup", str(cell), "--")
        with subprocess.Popen((*argv, "sh", "-c", TREE), stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            assert is_cell(cell)
            close_cell(cell)
            assert child.stdout.read() == b""  # nobody holds the pipe any more
        assert not cell.exists()
        assert not is_cell(cell)


def test_a_cgroup_of_another_is_no_cell() -> None:
    """A recorded path is used only if it is one that we make."""
    assert not is_cell(Path("/sys/fs/cgroup/system.slice"))
    if (own := own_cgroup()) is not None:
        assert not is_cell(own)


def test_closing_twice_is_no_error() -> None:
    """A cgroup that is gone is closed."""
    with open_cell() as cell:
        if cell is None:
            pytest.skip("machine lacks: a version 2 cgroup that can be written")
        close_cell(cell)
