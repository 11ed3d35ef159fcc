"""Where the state directory lies, and every place that is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

import pytest

from bootstrap.errors import ConfigurationError
from bootstrap.location import Location, find_location
from bootstrap.place import default_root, folder_name
from bootstrap.state import open_state
from bootstrap.statedir import sharing_host
from tests.machine import needs

SHARED_TABLE = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 /export/a\\040b /mnt/a\\040b rw,relatime - nfs4 server:/export rw
31 21 0:41 / /mnt/odd rw,relatime shared:2 master:1 - tmpfs none rw
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Make a workspace to keep state for."""
    path = tmp_path / "work space"
    path.mkdir()
    return path


def _refusal(workspace: Path, root: Path) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        open_state(workspace, root, create=True).close()
    assert caught.value.status == 78
    return caught.value


@pytest.mark.parametrize(
    ("environ", "uid", "expected"),
    [
        ({}, 0, "/var/lib/attempt-runner"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, 0, "/var/lib/attempt-runner"),
        ({"ATTEMPT_STATE_DIR": "/s"}, 0, "/s"),
        ({"ATTEMPT_STATE_DIR": "/s", "XDG_STATE_HOME": "/x"}, 1000, "/s"),
        ({"ATTEMPT_STATE_DIR": "", "XDG_STATE_HOME": "/x"}, 1000, "/x/attempt-runner"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, 1000, "/x/attempt-runner"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, 1000, "/h/.local/state/attempt-runner"),
        ({"HOME": "/h"}, 12345, "/h/.local/state/attempt-runner"),
    ],
)
def test_the_place_is_told_by_environment_and_user(
    environ: dict[str, str], uid: int, expected: str
) -> None:
    """The first of the documented sources that says something wins."""
    assert default_root(environ, uid) == Path(expected)


@pytest.mark.parametrize(
    "environ", [{}, {"HOME": ""}, {"HOME": "relative"}, {"ATTEMPT_STATE_DIR": "relative"}]
)
def test_a_user_without_a_home_has_to_name_a_place(environ: dict[str, str]) -> None:
    """Nothing is guessed from the password database or the current directory."""
    with pytest.raises(ConfigurationError):
        default_root(environ, 1000)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/w/job", "job-7d2488f59fac"),
        ("/", "_-8a5edab28263"),
        ("/w/a b\n\u202e", "a_b____"),
        ("/w/-rf", "_rf-"),
        ("/w/.git", "_git-"),
        ("/w/" + "x" * 255, "x" * 64 + "-"),
    ],
)
def test_a_folder_is_named_for_people_and_by_digest(path: str, name: str) -> None:
    """Basename and 12 hex of the path's sha256; no byte that a shell or terminal minds."""
    found = folder_name(Path(path), None)
    assert found.startswith(name)
    assert len(found) <= 64 + 13
    digest = subprocess.run(
        ["sha256sum"], input=os.fsencode(path), capture_output=True, check=True
    ).stdout[:12]
    assert found.endswith("-" + digest.decode())


def test_the_folder_is_made_private_once(workspace: Path, tmp_path: Path) -> None:
    """A bootstrap makes it, mode 0700 whatever the umask; every later call finds it again."""
    old = os.umask(0)
    try:
        with open_state(workspace, tmp_path / "a" / "b", create=True) as state:
            first = state.directory.path
    finally:
        os.umask(old)
    for path in (first, first.parent, first.parent.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    with open_state(workspace, tmp_path / "a" / "b", create=False) as state:
        assert state.directory.path == first
        assert state.workspace == workspace
        assert state.exposed == ()


def test_one_workspace_by_two_paths_is_one_folder(workspace: Path, tmp_path: Path) -> None:
    """A link to the workspace leads to the state of the workspace."""
    (tmp_path / "link").symlink_to(workspace)
    with (
        open_state(workspace, tmp_path / "s", create=True) as one,
        open_state(tmp_path / "link", tmp_path / "s", create=True) as other,
    ):
        assert one.directory.path == other.directory.path
        assert other.workspace == workspace


def test_without_a_bootstrap_there_is_no_state(workspace: Path, tmp_path: Path) -> None:
    """A reader makes nothing, and says what to do."""
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="run a bootstrap first"):
            open_state(workspace, tmp_path / "state", create=False)
        assert not list((tmp_path / "state").glob("*"))
        (tmp_path / "state").mkdir(exist_ok=True)


@pytest.mark.parametrize("kind", ["missing", "file", "loop"])
def test_a_workspace_that_is_no_directory_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing there, a file, a link to itself: one clear refusal, and no state is made."""
    path = tmp_path / "workspace"
    if kind == "file":
        path.touch()
    if kind == "loop":
        path.symlink_to(path)
    assert "workspace" in _refusal(path, tmp_path / "state").what
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("below", ["", "state", "deep/er/state"])
def test_state_in_the_workspace_is_refused(workspace: Path, below: str) -> None:
    """The agent could write it; nothing is made there either."""
    assert _refusal(workspace, workspace / below).found == "the workspace"
    assert list(workspace.iterdir()) == []


def test_state_behind_a_link_in_the_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    """Where the link leads, the agent decides."""
    (tmp_path / "elsewhere").mkdir()
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    assert _refusal(workspace, workspace / "link" / "state").found == "the workspace"


def test_state_in_the_workspace_by_another_path_is_refused(workspace: Path, tmp_path: Path) -> None:
    """A link to the workspace does not hide it, nor does a detour through it."""
    (tmp_path / "link").symlink_to(workspace)
    assert _refusal(workspace, tmp_path / "link" / "state").found == "the workspace"
    assert _refusal(workspace, workspace / ".." / "state").found == "the workspace"


def test_state_around_the_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    """A state directory that holds the workspace would be within the agent's reach."""
    assert "around" in _refusal(workspace, tmp_path).found
    assert "around" in _refusal(workspace, Path("/")).found
    inner = workspace / "inner"
    inner.mkdir()
    assert "around" in _refusal(inner, workspace).found


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_state_directory_that_is_a_link_is_refused(
    workspace: Path, tmp_path: Path, target: str
) -> None:
    """The last component is no link, whether or not it leads somewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / target)
    assert _refusal(workspace, tmp_path / "state").found == "a symbolic link"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(workspace: Path, tmp_path: Path) -> None:
    """Nobody gets to choose where the state of a workspace goes."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / folder_name(workspace, None)).symlink_to(tmp_path / "elsewhere")
    assert "a link" in _refusal(workspace, tmp_path / "state").found


@pytest.mark.parametrize("kind", ["absolute", "relative", "chain"])
def test_a_link_on_the_way_is_followed_where_only_we_could_make_it(
    workspace: Path, tmp_path: Path, kind: str
) -> None:
    """/home may be a link on a system that keeps homes elsewhere."""
    (tmp_path / "real").mkdir()
    targets = {"absolute": tmp_path / "real", "relative": Path("real"), "chain": Path("second")}
    (tmp_path / "second").symlink_to("./x/../real")
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(targets[kind])
    with open_state(workspace, tmp_path / "link" / "state", create=True) as state:
        assert state.directory.path.parent == tmp_path / "real" / "state"


def test_links_in_a_circle_are_refused(workspace: Path, tmp_path: Path) -> None:
    """The walk ends where the kernel's would."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert _refusal(workspace, tmp_path / "a" / "state").found == "a symbolic link"


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o770, 0o600])
def test_a_folder_that_others_may_enter_is_refused(
    workspace: Path, tmp_path: Path, mode: int
) -> None:
    """The folder is 0700 or it is not used; it is not mended either."""
    with open_state(workspace, tmp_path / "state", create=True) as state:
        folder = state.directory.path
    folder.chmod(mode)
    assert f"mode {mode:04o}" in _refusal(workspace, tmp_path / "state").found
    assert folder.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("mode", "refused"), [(0o777, True), (0o757, True), (0o1777, False), (0o755, False)]
)
def test_a_parent_that_others_may_write_needs_the_sticky_bit(
    workspace: Path, tmp_path: Path, mode: int, *, refused: bool
) -> None:
    """Without it, whoever may write there can put another directory in place of ours."""
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent").chmod(mode)
    root = tmp_path / "parent" / "state"
    if refused:
        assert f"mode {mode:04o}" in _refusal(workspace, root).found
        assert not root.exists()
    else:
        open_state(workspace, root, create=True).close()


def test_a_file_on_the_way_is_refused(workspace: Path, tmp_path: Path) -> None:
    """What is no directory is named with its path."""
    (tmp_path / "file").touch()
    assert "Not a directory" in _refusal(workspace, tmp_path / "file" / "state").found
    assert "relative" in _refusal(workspace, Path("state")).found


@needs("root")
@pytest.mark.parametrize("place", ["parent", "state", "link"])
def test_a_parent_of_another_owner_is_refused(workspace: Path, tmp_path: Path, place: str) -> None:
    """Its owner could move the state away; so could the owner of a link on the way."""
    (tmp_path / "real").mkdir()
    (tmp_path / "parent").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "parent" / "state").mkdir()
    owned = tmp_path / "parent" / "state" if place == "state" else tmp_path / place
    os.chown(owned, 12345, 12345, follow_symlinks=False)
    root = tmp_path / ("link" if place == "link" else "parent") / "state"
    assert _refusal(workspace, root).found == "owner 12345"


@needs("root")
def test_a_folder_of_another_owner_is_refused(workspace: Path, tmp_path: Path) -> None:
    """A folder that somebody else made first is not ours, though its mode is right."""
    with open_state(workspace, tmp_path / "state", create=True) as state:
        folder = state.directory.path
    os.chown(folder, 12345, 12345)
    assert "owner 12345" in _refusal(workspace, tmp_path / "state").found


OPEN = """
import sys
from pathlib import Path
from bootstrap.errors import ConfigurationError
from bootstrap.state import open_state
for root in sys.argv[2:]:
    try:
        with open_state(Path(sys.argv[1]), Path(root), create=True) as state:
            print("opened", *state.exposed)
    except ConfigurationError as error:
        print(error.found)
"""


def _in_namespace(script: str, *arguments: object) -> list[str]:
    command = ["unshare", "--mount", "sh", "-ec", script, "sh", sys.executable, "-c", OPEN]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@needs("root", "mount")
def test_state_in_a_bind_mount_of_the_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    """Another mount of the workspace, or of a part of it, is the workspace still."""
    (workspace / "part").mkdir()
    for name in ("whole", "some", "above"):
        (tmp_path / name).mkdir()
    script = (
        f"cd '{tmp_path}'; mount --bind 'work space' whole; mount --bind 'work space/part' some;"
        'mount --bind . above; exec "$@"'
    )
    roots = (tmp_path / name / "state" for name in ("whole", "some"))
    around = tmp_path / "above"
    assert _in_namespace(script, workspace, *roots, around) == [
        "the workspace",
        "a mount of the same",
        "one around it",
    ]


@needs("root", "mount")
def test_a_mount_root_that_all_may_write_is_taken_and_told(workspace: Path, tmp_path: Path) -> None:
    """An emptyDir is 0777: taken, but the caller hears that others could reach it."""
    (tmp_path / "volume").mkdir()
    script = f"mount -t tmpfs -o mode=0777 none '{tmp_path}/volume'; exec \"$@\""
    found = _in_namespace(script, workspace, tmp_path / "volume" / "state", tmp_path / "volume")
    assert found == [f"opened {tmp_path}/volume"] * 2


@needs("root")
def test_a_parent_of_an_owner_that_is_not_mapped_is_taken(workspace: Path, tmp_path: Path) -> None:
    """In a container without root's own mapping, the parents belong to the overflow uid."""
    (tmp_path / "parent" / "state").mkdir(parents=True)
    os.chown(tmp_path / "parent", 12345, 12345)
    inside = ["unshare", "--user", "--map-root-user", sys.executable, "-c", OPEN]
    command = [*inside, str(workspace), str(tmp_path / "parent" / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("machine lacks: user namespaces")
    assert (done.stdout, done.stderr) == ("opened\n", "")


@needs("root")
def test_a_user_without_a_passwd_entry_keeps_state() -> None:
    """A container's arbitrary uid needs no name and no home."""
    user = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", sys.executable]
    if subprocess.run(
        [*user, "-c", "import bootstrap"], capture_output=True, check=False
    ).returncode:
        pytest.skip("machine lacks: an interpreter that every user may start")
    with TemporaryDirectory() as name:
        os.chown(name, 54321, 54321)
        (Path(name) / "workspace").mkdir()
        os.chown(f"{name}/workspace", 54321, 54321)
        done = subprocess.run(
            [*user, "-c", OPEN, f"{name}/workspace", f"{name}/own/state"],
            capture_output=True,
            text=True,
            env={},
            check=False,
        )
    assert (done.stdout, done.stderr) == ("opened\n", "")


def test_a_shared_filesystem_is_known_by_the_mount_table() -> None:
    """nfs4 is shared, tmpfs is not, and what the table does not show counts as shared."""
    table = SHARED_TABLE.splitlines(keepends=True)
    shared = find_location(table, 30, PurePath("/mnt/a b/state"))
    assert shared == Location("nfs4", "0:40", PurePath("/export/a b/state"))
    assert shared.shared
    assert not find_location(table, 31, PurePath("/mnt/odd")).shared
    assert find_location(table, 99, PurePath("/mnt")).shared == (sys.platform == "linux")


def test_a_shared_filesystem_has_to_be_named_and_keeps_hosts_apart() -> None:
    """Refused by default; named by the operator, the folder is this host's own."""
    place = Location("nfs4", "0:40", PurePath("/export/state"))
    with pytest.raises(ConfigurationError, match="filesystem nfs4"):
        sharing_host(Path("/state"), place, named=False)
    host = sharing_host(Path("/state"), place, named=True)
    assert host == os.uname().nodename
    assert folder_name(Path("/w/job"), host) == f"job-7d2488f59fac-{host}"
    assert sharing_host(Path("/s"), place._replace(kind="ext4"), named=False) is None
