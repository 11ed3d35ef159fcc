"""job.toml: read only from where no agent and no other user could have written it."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.jobfile import MAX_BYTES, read_job_file
from bootstrap.errors import ConfigurationError
from tests.machine import needs
from tests.someone import PLAIN, common_ground

if TYPE_CHECKING:
    from pathlib import Path

TEXT: Final = '[job]\nwait = 5\n[agent]\nagent = "true"\n[scorer]\nmin-tests = 2\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a job.toml beside an empty workspace."""
    (tmp_path / "workspace").mkdir()
    path = tmp_path / "job.toml"
    path.write_text(TEXT)
    return path


def refused(path: Path, workspace: Path | None = None) -> str:
    """Return why a file is refused."""
    with pytest.raises(ConfigurationError) as caught:
        read_job_file(path, workspace)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_is_read_with_its_digest(file: Path) -> None:
    """Keys become field names, and the digest is that of the bytes that were parsed."""
    read = read_job_file(file, file.parent / "workspace")
    assert read.values == {"wait": 5, "agent": "true", "min_tests": 2}
    assert read.sha256 == sha256(TEXT.encode()).hexdigest()


def test_a_link_is_followed_and_its_target_judged(file: Path, tmp_path: Path) -> None:
    """A mounted ConfigMap is a link to a link; one that ends in the workspace is refused."""
    (tmp_path / "..data").symlink_to(file)
    (tmp_path / "config").symlink_to("..data")
    assert read_job_file(tmp_path / "config", tmp_path / "workspace").values["wait"] == 5
    planted = tmp_path / "workspace" / "job.toml"
    planted.write_text(TEXT)
    (tmp_path / "innocent").symlink_to(planted)
    for path in (planted, tmp_path / "innocent", tmp_path / "workspace/../workspace/job.toml"):
        assert "the agent can write" in refused(path, tmp_path / "workspace")


def test_a_link_in_the_workspace_is_refused_wherever_it_leads(file: Path, tmp_path: Path) -> None:
    """The agent could point it at any file that we trust."""
    link = tmp_path / "workspace" / "job.toml"
    link.symlink_to(file)
    assert "the agent can write" in refused(link, tmp_path / "workspace")


def test_a_file_may_not_lie_in_the_workspace_that_it_names(tmp_path: Path) -> None:
    """Also when only the file says where the workspace is."""
    path = tmp_path / "job.toml"
    path.write_text('[job]\nworkspace = "."\n')
    assert "the agent can write" in refused(path)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    """Whoever can write it decides what is run."""
    file.chmod(mode)
    assert "that only you or root can write" in refused(file)


def test_a_file_that_others_may_replace_is_refused(file: Path) -> None:
    """A parent that others may write needs the sticky bit."""
    file.parent.chmod(0o777)
    assert "parents that only you or root can write" in refused(file)
    file.parent.chmod(0o1777)
    assert read_job_file(file, None).values["wait"] == 5


@needs("root")
def test_a_file_of_another_user_is_refused() -> None:
    """Its owner may write it at any time, whatever its mode says."""
    with common_ground() as directory:
        path = directory / "job.toml"
        path.write_text(TEXT)
        os.chown(path, PLAIN, PLAIN)
        assert "that only you or root can write" in refused(path)
        os.chown(path, 0, 0)
        os.chown(directory, PLAIN, PLAIN)
        assert "parents that only you or root can write" in refused(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, os.fspath])
def test_what_is_no_file_is_refused(tmp_path: Path, make: object) -> None:
    """A FIFO is not waited for; nothing at all is no file either."""
    assert callable(make)
    make(tmp_path / "job.toml")
    assert "configuration" in refused(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[jobs]\n", "only the tables"),
        ("wait = 5\n", "only the tables"),
        ("[job]\nagents = 'x'\n", "such as agent"),
        ("[job]\nscore_path = ['x']\n", "such as score-path"),
        ("[job]\nagent = 'x'\n", "agent in [agent]"),
        ("[job]\nconfig-sha256 = 'x'\n", "a flag's name"),
        ("[job]\nwait = 5\nwait = 6\n", "a TOML file"),
        ("[job\n", "a TOML file"),
        ("\ufeff[job]\n", "a TOML file"),
        ("[job]\nwait = " + "1" * 5000, "a TOML file"),
        ("[job]\nx = " + "[" * 5000, "a TOML file"),
        ("#" * (MAX_BYTES + 1), "at most"),
    ],
)
def test_what_says_something_else_is_refused(file: Path, text: str, told: str) -> None:
    """Unknown tables and keys, another's table, doubled keys, endless numbers and depths."""
    file.write_text(text)
    assert told in refused(file)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    """TOML is UTF-8; a stray byte is not guessed at."""
    file.write_bytes(b"[job]\nprompt = '\xff'\n")
    assert "a TOML file in UTF-8" in refused(file)
