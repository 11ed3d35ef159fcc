"""Capture: the runner's own diff, what it leaves out, and what happens when it cannot be made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.baseline import Scope
from attempt_runner.diff import CaptureError, Side, write_diff
from attempt_runner.git import Bounds, make_git
from attempt_runner.proof import NotReproducedError, prove
from bootstrap.differences import Difference, changed_paths
from bootstrap.errors import RefusalError, TamperedStateError
from bootstrap.files import open_directory
from bootstrap.manifest import read_manifest
from bootstrap.visit import Limits
from tests.captures import Bench, contents, git, make_bench, quick_room
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bootstrap.manifest import Entry

pytestmark = needs("git")

COMMITS: Final = 50


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Make a workspace with its baseline recorded as found."""
    made = make_bench(tmp_path)
    made.record()
    return made


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """Make a directory in memory where there is one."""
    with quick_room(tmp_path) as made:
        yield made


def refused(bench: Bench, *protect: str, restore: bool = False) -> dict[str, str]:
    """Capture, which must refuse; return what was found for each field."""
    with pytest.raises(RefusalError) as caught:
        bench.capture(*protect, restore=restore)
    return {finding.field: finding.found for finding in caught.value.findings}


def test_the_patch_is_sealed_with_its_manifest(bench: Bench) -> None:
    """The attempt holds a read-only patch, the manifest, and nothing else."""
    (bench.workspace / "code.py").write_text("changed\n")
    captured = bench.capture()
    assert sorted(path.name for path in bench.attempt.iterdir()) == ["manifest", "patch.diff"]
    assert bench.patch.stat().st_mode & 0o777 == 0o444
    assert bench.patch.stat().st_size == captured.patch.size
    assert captured.changed == 1
    assert b"a/code.py b/code.py\nindex " in bench.patch.read_bytes()


def test_a_protected_change_is_named(bench: Bench) -> None:
    """A changed, a removed and an added path under a pattern each refuse the attempt."""
    (bench.workspace / "package/module.py").write_text("cheat\n")
    (bench.workspace / "package/conftest.py").write_text("cheat\n")
    (bench.workspace / "notes.txt").unlink()
    (bench.workspace / "code.py").write_text("fair\n")
    found = refused(bench, "package/**", "*.txt")
    assert found == {"protected_paths": "notes.txt, package/conftest.py, package/module.py"}


def test_an_unchanged_protected_path_is_no_matter(bench: Bench) -> None:
    """Patterns refuse changes, not files."""
    (bench.workspace / "code.py").write_text("fair\n")
    assert bench.capture("package/**").restored == ()


def test_protected_paths_are_put_back(bench: Bench) -> None:
    """With restore the patch and so the tree have the baseline's version, and it is told."""
    before = contents(bench.workspace)
    (bench.workspace / "package/module.py").write_text("cheat\n")
    (bench.workspace / "package/conftest.py").write_text("cheat\n")
    (bench.workspace / "code.py").write_text("fair\n")
    captured = bench.capture("package/**", restore=True)
    assert captured.restored == (b"package/conftest.py", b"package/module.py")
    assert contents(bench.tree()) == {**before, b"code.py": ("file", b"fair\n")}


def test_what_stands_in_the_way_of_a_protected_path_goes(bench: Bench) -> None:
    """A protected directory that became a link, and a protected file that became a directory."""
    before = contents(bench.workspace)
    (bench.workspace / "package/module.py").unlink()
    (bench.workspace / "package").rmdir()
    (bench.workspace / "package").symlink_to("/etc")
    (bench.workspace / "notes.txt").unlink()
    (bench.workspace / "notes.txt").mkdir()
    (bench.workspace / "notes.txt/cheat").write_text("cheat\n")
    (bench.workspace / "code.py").write_text("fair\n")
    bench.capture("package/**", "notes.txt", restore=True)
    assert contents(bench.tree()) == {**before, b"code.py": ("file", b"fair\n")}


def test_only_protected_changes_are_no_change(bench: Bench) -> None:
    """When all is put back nothing is left to score, which is an empty diff."""
    (bench.workspace / "notes.txt").write_text("cheat\n")
    assert "diff_file" in refused(bench, "*.txt", restore=True)


def test_every_refusal_is_told_at_once(bench: Bench) -> None:
    """Protected paths and coverage stand in one refusal, in the order of the design."""
    (bench.workspace / "notes.txt").unlink()
    os.mkfifo(bench.workspace / "pipe")
    assert list(refused(bench, "*.txt")) == ["protected_paths", "coverage"]


def test_excluded_paths_come_from_the_baseline(tmp_path: Path) -> None:
    """They are in no manifest and no patch, and in the tree as they were."""
    bench = make_bench(tmp_path, Scope(exclude=("**/__pycache__", "build/**")))
    (bench.workspace / "package/__pycache__").mkdir()
    (bench.workspace / "package/__pycache__/module.pyc").write_text("old")
    (bench.workspace / "build").mkdir()
    (bench.workspace / "build/tool").write_text("old")
    baseline = bench.record()
    assert baseline.exclude == ("**/__pycache__", "build/**")
    (bench.workspace / "package/__pycache__/module.pyc").write_text("poison")
    (bench.workspace / "build/tool").write_text("poison")
    os.mkfifo(bench.workspace / "build/pipe")
    (bench.workspace / "code.py").write_text("fair\n")
    assert bench.capture().changed == 1
    tree = bench.tree()
    assert (tree / "package/__pycache__/module.pyc").read_text() == "old"
    assert (tree / "build/tool").read_text() == "old"
    assert b"__pycache__" not in (bench.attempt / "manifest").read_bytes()


def test_special_files_of_the_baseline_are_no_matter(tmp_path: Path) -> None:
    """A FIFO that was there and stays is in the manifest, not in the tree, and not refused."""
    bench = make_bench(tmp_path)
    os.mkfifo(bench.workspace / "pipe")
    bench.record()
    (bench.workspace / "code.py").write_text("fair\n")
    bench.capture()
    assert not (bench.tree() / "pipe").exists()
    (bench.workspace / "pipe").unlink()
    assert "pipe" in refused(bench)["coverage"]


def test_a_nested_repository_that_stays_is_no_matter(tmp_path: Path) -> None:
    """A vendored repository of the baseline is in the tree, and only a change of it refuses."""
    bench = make_bench(tmp_path)
    (bench.workspace / "vendored").mkdir()
    git(bench.workspace / "vendored", "init", "-q")
    bench.record()
    (bench.workspace / "code.py").write_text("fair\n")
    bench.capture()
    assert (bench.tree() / "vendored/.git/HEAD").exists()
    (bench.workspace / "vendored/.git/config").write_text("[core]\n\tfsmonitor = true\n")
    assert "vendored/.git/config" in refused(bench)["coverage"]


def test_recorded_differences_are_told_and_not_judged(bench: Bench) -> None:
    """Group bits and empty directories are counted beside a change that is judged."""
    (bench.workspace / "code.py").write_text("fair\n")
    (bench.workspace / "notes.txt").chmod(0o664)
    (bench.workspace / "empty\n").mkdir()
    captured = bench.capture()
    assert captured.recorded.modes == 1
    assert captured.recorded.directories == 1
    assert json.dumps(captured.as_fields()["recorded"]) == (
        '{"modes": 1, "owners": 0, "directories": 1, "first": ["empty%0A", "notes.txt"]}'
    )


@pytest.mark.parametrize(
    ("limits", "make"),
    [
        (Limits(files=10), lambda top: [(top / f"f{n}").touch() for n in range(10)]),
        (Limits(size=1000), lambda top: (top / "f0").write_bytes(bytes(1000))),
        (Limits(depth=2), lambda top: (top / "f0/f1/f2/f3").mkdir(parents=True)),
    ],
    ids=["files", "bytes", "depth"],
)
def test_a_workspace_over_a_limit_is_named(
    tmp_path: Path, limits: Limits, make: Callable[[Path], object]
) -> None:
    """An agent that outgrows a limit is refused with the first path that is too much."""
    bench = make_bench(tmp_path, Scope(limits=limits))
    bench.record()
    make(bench.workspace)
    assert "f" in refused(bench)["coverage"]


def test_a_change_over_its_limit_names_the_largest_file(tmp_path: Path) -> None:
    """Git holds a changed file in memory, so their bytes are bounded."""
    bench = make_bench(tmp_path, Scope(change=1000))
    bench.record()
    (bench.workspace / "small").write_bytes(b"s")
    (bench.workspace / "large").write_bytes(bytes(1001))
    assert "large of 1001 bytes" in refused(bench)["coverage"]


@needs("plain-user")
def test_an_unreadable_file_is_named(bench: Bench) -> None:
    """A plain user's runner cannot vouch for what it cannot read."""
    (bench.workspace / "code.py").chmod(0)
    assert "code.py" in refused(bench)["coverage"]


@needs("root")
def test_a_hard_link_to_a_file_of_the_runner_is_named(bench: Bench) -> None:
    """What an agent of another user could not read does not reach the scorer by our hand."""
    secret = bench.root / "secret"
    secret.write_text("precious\n")
    os.chown(bench.workspace, 65534, 65534)
    (bench.workspace / "mine").hardlink_to(secret)
    assert refused(bench) == {"coverage": "links: mine"}


@needs("root", "mount")
def test_a_mount_is_named(tmp_path: Path) -> None:
    """A bind mount of the same filesystem keeps the device number, and is found all the same."""
    script = (
        "import sys; from pathlib import Path; from subprocess import run\n"
        "from tests.captures import make_bench; from bootstrap.errors import RefusalError\n"
        "bench = make_bench(Path(sys.argv[1])); bench.record()\n"
        "run(['mount', '--bind', '/etc', bench.workspace / 'package'], check=True)\n"
        "try: bench.capture()\n"
        "except RefusalError as error: print(error.findings[0].found)\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout == b"mount: package\n"


def test_a_failed_git_is_an_error_and_no_empty_diff(tmp_path: Path) -> None:
    """Whatever ends git, its silence is not taken for the absence of a change."""
    git_directory = make_git("false", tmp_path / "git")
    with open_directory(tmp_path) as root, open(tmp_path / "patch", "wb") as patch:
        nothing = Side("before", root, (), ours=True)
        with pytest.raises(CaptureError, match="exit status 1"):
            write_diff(git_directory, nothing, nothing._replace(name="after"), patch.fileno())


def test_a_git_without_an_end_is_stopped(tmp_path: Path) -> None:
    """The time limit kills it, and says so."""
    slow = make_git("sleep", tmp_path / "git")
    ended = slow.run(["600"], work_tree=tmp_path, bounds=Bounds(seconds=0.2))
    assert ended.failed
    assert ended.told == "no end within the time limit"


def test_a_changed_copy_is_tampering(bench: Bench) -> None:
    """The state's own copy is compared with its manifest before it is used."""
    (bench.baseline / "tree/code.py").write_text("evil\n")
    (bench.workspace / "code.py").write_text("fair\n")
    with pytest.raises(TamperedStateError, match=r"baseline of code\.py"):
        bench.capture()


def test_a_changed_copy_of_an_unchanged_file_is_tampering(bench: Bench) -> None:
    """The scoring tree is made of the whole copy, so the whole copy is compared."""
    (bench.baseline / "tree/notes.txt").write_text("evil\n")
    (bench.workspace / "code.py").write_text("fair\n")
    bench.capture()
    with pytest.raises(TamperedStateError, match="baseline"):
        bench.tree()


@pytest.mark.parametrize("name", ["manifest", "baseline.json"])
def test_a_changed_record_is_tampering(bench: Bench, name: str) -> None:
    """Neither the manifest nor its digest can be exchanged alone."""
    data = (bench.baseline / name).read_bytes()
    (bench.baseline / name).write_bytes(data.replace(b"0", b"1"))
    (bench.workspace / "code.py").write_text("fair\n")
    with pytest.raises(TamperedStateError):
        bench.capture()


def test_a_patch_that_gives_other_bytes_is_not_proved(bench: Bench) -> None:
    """The proof is made of the sealed patch alone and names the path."""
    (bench.workspace / "data.bin").write_bytes(bytes(reversed(range(256))))
    bench.capture()
    before = next(entry_of(bench.baseline / "manifest", b"data.bin"))
    after = next(entry_of(bench.attempt / "manifest", b"data.bin"))
    with open_directory(bench.baseline / "tree") as copy, open_directory(bench.attempt) as attempt:
        prove(copy, attempt, "patch.diff", [Difference(b"data.bin", before, after)])
        other = after._replace(content=before.content)
        with pytest.raises(NotReproducedError) as caught:
            prove(copy, attempt, "patch.diff", [Difference(b"data.bin", before, other)])
        assert caught.value.paths == [b"data.bin"]


def entry_of(manifest: Path, path: bytes) -> Iterator[Entry]:
    """Yield the entries of a path in a stored manifest."""
    with open(manifest, "rb") as stored:
        yield from [entry for entry in read_manifest(stored) if entry.path == path]


def test_the_live_workspace_is_compared_again(bench: Bench) -> None:
    """A path that moves after the capture is named; times and empty directories are not."""
    (bench.workspace / "code.py").write_text("fair\n")
    tree_sha256 = bench.capture().tree_sha256
    (bench.workspace / "empty").mkdir()
    assert live(bench, tree_sha256) == ()
    (bench.workspace / "code.py").write_text("late\n")
    (bench.workspace / "link").unlink()
    assert live(bench, tree_sha256) == (b"code.py", b"link")
    with pytest.raises(TamperedStateError):
        live(bench, "0" * 64)


def live(bench: Bench, tree_sha256: str) -> tuple[bytes, ...]:
    """Compare the workspace with the last attempt's manifest, as the gate does."""
    with open_directory(bench.workspace) as root, open(bench.attempt / "manifest", "rb") as stored:
        return changed_paths(root, bench.scope.rules(), stored, tree_sha256)


def history() -> list[tuple[str, str]]:
    """Return steps between commits, oldest first, of the repository that these tests lie in."""
    lines = subprocess.run(
        ["git", "log", "--first-parent", "--reverse", "--format=%H", "-n", str(COMMITS + 1)],
        cwd=Path(__file__).parent,
        capture_output=True,
        check=False,
    ).stdout
    commits = lines.decode("ascii").split()
    return list(pairwise(commits))


@pytest.mark.timeout(600)
def test_fifty_real_commits_are_captured_as_git_has_them(room: Path) -> None:
    """For each commit of a real history the patch is git's own, byte for byte."""
    steps = history()
    if len(steps) < COMMITS:
        pytest.skip("machine lacks: a clone with fifty commits of this repository")
    clone = room / "clone"
    git(room, "clone", "-q", "--no-checkout", str(Path(__file__).parent.parent), str(clone))
    for number, (parent, child) in enumerate(steps):
        bench = Bench(room / str(number))
        bench.root.mkdir()
        clone.rename(bench.workspace)
        git(bench.workspace, "checkout", "-q", "--force", parent)
        bench.record()
        git(bench.workspace, "checkout", "-q", "--force", child)
        bench.capture()
        options = ("-p", "--binary", "--full-index", "--no-renames", "-r")
        expected = git(bench.workspace, "diff-tree", *options, parent, child)
        assert bench.patch.read_bytes() == os.fsencode(expected)
        bench.workspace.rename(clone)
