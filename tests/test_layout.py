"""What is refused before anything starts: judges within the reach of the judged."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from attempt_runner.isolate import User
from attempt_runner.layout import check_apart, check_guarded, check_single_links
from bootstrap.errors import ConfigurationError
from tests.jobs import make_job
from tests.machine import needs
from tests.someone import AGENT, ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Return a workspace and a state root, apart from each other."""
    workspace, state = tmp_path / "workspace", tmp_path / "state"
    workspace.mkdir()
    state.mkdir()
    return workspace, state


def test_two_directories_side_by_side_are_apart(places: tuple[Path, Path]) -> None:
    """A common parent, or a name that begins alike, is no overlap."""
    workspace, state = places
    (workspace.parent / "workspace-state").mkdir()
    check_apart(state, [workspace])
    check_apart(workspace.parent / "workspace-state", [workspace])


@pytest.mark.parametrize("inner", ["state", "workspace"])
def test_one_within_the_other_is_refused(inner: str, tmp_path: Path) -> None:
    """The state in the workspace, and the workspace in the state."""
    outer = tmp_path / "outer"
    (outer / "deep" / "inner").mkdir(parents=True)
    pair = (outer / "deep" / "inner", outer)
    state, workspace = pair if inner == "state" else pair[::-1]
    with pytest.raises(ConfigurationError) as caught:
        check_apart(state, [workspace])
    assert "state directory" in str(caught.value)


def test_a_link_does_not_hide_an_overlap(places: tuple[Path, Path]) -> None:
    """Real paths are compared, whatever name was given."""
    workspace, state = places
    (workspace / "state").mkdir()
    (state / "link").symlink_to(workspace / "state")
    with pytest.raises(ConfigurationError):
        check_apart(state / "link", [workspace])


@needs("root", "mount")
@pytest.mark.parametrize("mounted", ["workspace", "workspace/inner"])
def test_a_bind_mount_does_not_hide_an_overlap(
    mounted: str, places: tuple[Path, Path], tmp_path: Path
) -> None:
    """One directory under two paths is one directory; so is a part of it."""
    workspace, _ = places
    (workspace / "inner" / "state").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    state = tmp_path / "elsewhere" / ("inner/state" if mounted == "workspace" else "state")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path;"
        "from attempt_runner.layout import check_apart; from bootstrap.errors import *\n"
        "try: check_apart(Path(sys.argv[2]), [Path(sys.argv[3])])\n"
        "except ConfigurationError: print('refused')\n"
    )
    script = f'mount --bind {tmp_path}/{mounted} {tmp_path}/elsewhere && exec "$@"'
    python = (sys.executable, "-c", code, str(ROOT), str(state), str(workspace))
    argv = ("unshare", "--mount", "sh", "-c", script, "sh", *python)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "refused\n", done.stderr


def test_an_old_hard_link_to_a_state_file_is_refused(places: tuple[Path, Path]) -> None:
    """A second name may lie in the workspace, where no tier protects it."""
    workspace, state = places
    (state / "job-log.jsonl").write_text("{}\n")
    check_single_links(state)
    os.link(state / "job-log.jsonl", workspace / "innocent")
    with pytest.raises(ConfigurationError) as caught:
        check_single_links(state)
    assert "job-log.jsonl" in str(caught.value)


def test_a_scorer_outside_of_the_workspace_is_fine(tmp_path: Path) -> None:
    """Nothing is returned for a tier that confines."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "scorer").write_text("")
    found = check_guarded("landlock", [tmp_path / "scorer"], [tmp_path / "workspace"], None)
    assert found == ()


@pytest.mark.parametrize("given", ["workspace/scorer", "direct", "by-directory/scorer", "hop"])
def test_a_scorer_that_the_agent_can_write_is_named(given: str, tmp_path: Path) -> None:
    """In the workspace, through a link to it, or by way of a link that lies in it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "scorer").write_text("")
    (tmp_path / "good").write_text("")
    (tmp_path / "direct").symlink_to("workspace/scorer")
    (tmp_path / "by-directory").symlink_to(workspace)
    (workspace / "back").symlink_to("../good")
    (tmp_path / "hop").symlink_to("workspace/back")
    with pytest.raises(ConfigurationError) as caught:
        check_guarded("bwrap", [tmp_path / given], [workspace], None)
    assert str(tmp_path / given) in str(caught.value)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    """Two links that name each other are walked a bounded number of times."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert check_guarded("landlock", [tmp_path / "a"], [], None) == ()


def test_under_none_what_can_be_written_is_returned(tmp_path: Path) -> None:
    """It is recorded, not refused."""
    (tmp_path / "workspace").mkdir()
    scorer = tmp_path / "workspace" / "scorer"
    scorer.write_text("")
    assert scorer in check_guarded("none", [scorer], [tmp_path / "workspace"], None)


@pytest.mark.parametrize(
    ("mode", "parent_mode", "owner", "refused"),
    [
        (0o644, 0o755, 0, False),
        (0o666, 0o755, 0, True),
        (0o644, 0o777, 0, True),
        (0o644, 0o1777, 0, False),
        (0o444, 0o755, AGENT, True),
    ],
    ids=["root's", "writable", "replaceable", "sticky", "agent's"],
)
@needs("root")
def test_where_the_user_is_the_barrier_permission_bits_decide(
    mode: int, parent_mode: int, owner: int, *, refused: bool, tmp_path: Path
) -> None:
    """A file, or a directory on its way, that this user may write or replace is refused."""
    parent = tmp_path / "tools"
    parent.mkdir()
    scorer = parent / "scorer"
    scorer.write_text("")
    scorer.chmod(mode)
    os.chown(scorer, owner, owner)
    parent.chmod(parent_mode)
    user = User(AGENT, AGENT)
    if refused:
        with pytest.raises(ConfigurationError):
            check_guarded("uid", [scorer], [], user)
    else:
        assert check_guarded("uid", [scorer], [], user) == ()
    assert check_guarded("uid+landlock", [scorer], [], user) == ()


@needs("landlock")
@pytest.mark.parametrize("flag", ["--base", "--scorer-home-from", "--path-add", "--scratch-dir"])
@pytest.mark.parametrize("how", ["in the workspace", "by a link in it", "by --allow-write"])
def test_what_a_verdict_hangs_on_is_out_of_the_agents_reach(
    flag: str, how: str, tmp_path: Path
) -> None:
    """What the scorer starts from, and where its copies lie, as much as the scorer itself."""
    job = make_job(tmp_path)
    place = job.directory / "place" if how == "by --allow-write" else job.workspace / "place"
    if how == "by a link in it":
        place.symlink_to(job.base)
    else:
        place.mkdir()
    allowed = ["--allow-write", str(place)] if how == "by --allow-write" else []
    words = ["--isolation", "landlock", *allowed, flag, str(place), "--agent", job.agent()]
    done = job.run(*words)
    assert (done.returncode, done.stdout) == (78, "")
    assert str(place) in done.stderr
    assert not job.has_log


def test_a_base_around_the_workspace_is_refused(tmp_path: Path) -> None:
    """What the agent writes would be copied into the tree unseen."""
    job = make_job(tmp_path)
    assert job.run("--base", str(job.directory), "--agent", job.agent()).returncode == 78
