from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.jobs import Job, make_job

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Lay out a fresh job below the test's own directory."""
    return make_job(tmp_path)
