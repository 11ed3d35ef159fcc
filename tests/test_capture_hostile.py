"""Agents that hide their change: each ends in a patch that reproduces it, or is named."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap.errors import RefusalError
from tests.captures import contents, make_bench, plain_environment, quick_room
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs("git")

AGENTS: Final = sorted((Path(__file__).parent / "hostile/capture").glob("*.sh"))


def expectation(agent: Path) -> tuple[str, str]:
    """Read what must become of an agent's change from the first line of its script."""
    words = agent.read_text(encoding="ascii").partition("\n")[0].split(" ")
    assert words[:2] == ["#", "expect:"]
    return words[2], " ".join(words[3:])


def test_there_are_agents() -> None:
    """An empty list would prove nothing."""
    assert len(AGENTS) >= 39


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """Make a directory in memory where there is one."""
    with quick_room(tmp_path) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.stem)
def test_no_change_is_hidden(agent: Path, room: Path) -> None:
    """The patch gives the workspace's bytes in any hands, or the refusal names the path."""
    bench = make_bench(room)
    bench.record()
    pristine = room / "pristine"
    shutil.copytree(bench.workspace, pristine, symlinks=True, ignore=lambda *_: {".git"})
    canary = room / "canary"
    subprocess.run(
        ["sh", "-e", str(agent)],
        cwd=bench.workspace,
        env={**plain_environment(), "CANARY": str(canary)},
        check=True,
    )
    canary.unlink(missing_ok=True)  # the agent's own commands may have started its programs
    verdict, path = expectation(agent)
    if verdict == "patch":
        bench.capture()
        plainly_apply(bench.patch, pristine)
        assert contents(pristine) == contents(bench.workspace)
        assert contents(bench.tree()) == contents(bench.workspace)
    else:
        with pytest.raises(RefusalError) as caught:
            bench.capture()
        assert caught.value.fields == ("diff_file" if verdict == "empty" else verdict,)
        assert path in caught.value.findings[0].found
        assert not bench.patch.exists()
    assert not canary.exists()


def plainly_apply(patch: Path, tree: Path) -> None:
    """Apply a patch as anybody would, without a repository."""
    subprocess.run(
        ["git", "apply", "--binary", str(patch)],
        cwd=tree,
        env={**plain_environment(), "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        check=True,
    )
