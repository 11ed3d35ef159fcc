from __future__ import annotations

import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.drivers import Driver
from tests.jobs import Job, make_job
from tests.someone import PLAIN, ROOT, as_plain, common_ground, plain_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Lay out a fresh job below the test's own directory."""
    return make_job(tmp_path)


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Start drivers in the test's own directory."""
    return Driver(tmp_path)


@pytest.fixture
def plain_driver() -> Iterator[Driver]:
    """Start drivers as a plain user, whoever runs the tests."""
    python, reads = plain_python(), ("test", "-r", str(ROOT / "bootstrap" / "processes.py"))
    if python is None or subprocess.run([*as_plain(), *reads], check=False).returncode != 0:
        pytest.skip("machine lacks: an interpreter and a checkout that a plain user may read")
    with common_ground(PLAIN) as directory:
        yield Driver(directory, as_plain(), python)


@pytest.fixture
def token() -> str:
    """Return digits that no other process on the machine carries in its command line."""
    return str(secrets.randbelow(10**12))
