"""The baseline: as found, a trusted directory or a commit, and a workspace that must equal it."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from attempt_runner.base import Base, parse_base
from attempt_runner.baseline import (
    Scope,
    StaleWorkspaceError,
    open_baseline,
    require_workspace,
)
from bootstrap.errors import ConfigurationError, TamperedStateError
from bootstrap.files import open_directory
from bootstrap.visit import Limits
from tests.captures import Bench, contents, git, make_bench
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs("git")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Make a workspace and, beside it, the repository that it was cloned from."""
    bench = make_bench(tmp_path)
    git(tmp_path, "clone", "-q", str(bench.workspace), str(tmp_path / "origin"))
    return bench


def origin(bench: Bench) -> Path:
    """Return the trusted repository of a bench."""
    return bench.root / "origin"


def leave(bench: Bench) -> None:
    """Leave in a workspace what a recycled server does, in every kind there is."""
    top = bench.workspace
    (top / "code.py").write_text("yesterday\n")
    (top / "notes.txt").unlink()
    (top / "run.sh").chmod(0o644)
    (top / "link").unlink()
    (top / "link").mkdir()
    (top / "link/inside").write_text("x")
    (top / "package/module.py").unlink()
    (top / "package").rmdir()
    (top / "package").symlink_to("/etc")
    (top / "left").mkdir()
    (top / "left/score.json").write_text("{}")
    os.mkfifo(top / "left/pipe")


LEFT = (
    b"code.py",
    b"left/pipe",
    b"left/score.json",
    b"link",
    b"link/inside",
    b"notes.txt",
    b"package",
    b"package/module.py",
    b"run.sh",
)


def test_as_found_says_so(bench: Bench) -> None:
    """Without a base the baseline is what was there, and evidence tells it."""
    leave(bench)
    baseline = bench.record()
    assert baseline.as_fields()["baseline"] == "as-found"
    with open_directory(bench.baseline) as directory:
        assert open_baseline(directory) == baseline


@pytest.mark.parametrize("kind", ["copy", "commit"])
def test_a_workspace_that_equals_its_base_is_recorded(bench: Bench, kind: str) -> None:
    """The kind is told, a commit by its full name, and the copy holds the base's bytes."""
    base = Base(origin(bench), "HEAD" if kind == "commit" else None)
    baseline = bench.record(base)
    head = git(origin(bench), "rev-parse", "HEAD").strip()
    assert (baseline.kind, baseline.commit) == (kind, head if kind == "commit" else None)
    assert contents(bench.baseline / "tree") == contents(bench.workspace)


@pytest.mark.parametrize("commit", [None, "HEAD"], ids=["copy", "commit"])
def test_what_a_recycled_server_left_is_refused(bench: Bench, commit: str | None) -> None:
    """Every path that differs is named, and nothing of the workspace is touched."""
    leave(bench)
    before = contents_with_special(bench.workspace)
    with pytest.raises(StaleWorkspaceError) as caught:
        bench.record(Base(origin(bench), commit))
    assert caught.value.found == b", ".join(LEFT).decode()
    assert contents_with_special(bench.workspace) == before


def contents_with_special(top: Path) -> list[tuple[str, int]]:
    """Return every path of a tree with its mode."""
    return sorted((str(path), path.lstat().st_mode) for path in top.rglob("*"))


@pytest.mark.parametrize("commit", [None, "HEAD"], ids=["copy", "commit"])
def test_a_workspace_is_put_back(bench: Bench, commit: str | None) -> None:
    """With restore the workspace has the base's bytes again, and no more than those."""
    before = contents(bench.workspace)
    leave(bench)
    bench.record(Base(origin(bench), commit), restore=True)
    assert contents(bench.workspace) == before
    assert not (bench.workspace / "left").exists()
    (bench.workspace / "code.py").write_text("fair\n")
    assert bench.capture().recorded.modes == 0


def test_putting_back_touches_nothing_outside(bench: Bench, tmp_path: Path) -> None:
    """A link in the place of a directory is unlinked, and what it points at stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "module.py").write_text("precious\n")
    (bench.workspace / "package/module.py").unlink()
    (bench.workspace / "package").rmdir()
    (bench.workspace / "package").symlink_to(outside)
    bench.record(Base(origin(bench)), restore=True)
    assert (outside / "module.py").read_text() == "precious\n"
    assert (bench.workspace / "package/module.py").read_text() == "module\n"
    assert not (bench.workspace / "package").is_symlink()


def test_a_second_model_starts_where_the_first_did(bench: Bench) -> None:
    """A half-done change is refused, or put back to the job's first baseline."""
    bench.record()
    leave(bench)
    with pytest.raises(StaleWorkspaceError, match="--restore"):
        require(bench, restore=False)
    assert require(bench, restore=True) == LEFT
    assert require(bench, restore=False) == ()


def require(bench: Bench, *, restore: bool) -> tuple[bytes, ...]:
    """Compare the workspace with its baseline."""
    with ExitStack() as opened:
        workspace = opened.enter_context(open_directory(bench.workspace))
        baseline = opened.enter_context(open_directory(bench.baseline))
        return require_workspace(workspace, baseline, bench.scope, restore=restore)


def test_excluded_paths_are_not_compared_and_not_put_back(bench: Bench) -> None:
    """What the operator left out stays in the workspace, and is the base's in the tree."""
    bench.scope = Scope(exclude=("cache",))
    (bench.workspace / "cache").mkdir()
    (bench.workspace / "cache/warm").write_text("x")
    (origin(bench) / "cache").mkdir()
    (origin(bench) / "cache/tool").write_text("trusted")
    leave(bench)
    bench.record(Base(origin(bench)), restore=True)
    assert (bench.workspace / "cache/warm").exists()
    assert (bench.baseline / "tree/cache/tool").read_text() == "trusted"
    assert not (bench.baseline / "tree/cache/warm").exists()


@needs("root")
def test_what_is_put_back_belongs_to_the_workspace_s_owner(bench: Bench) -> None:
    """An agent of another user can go on with the files that root restored."""
    os.chown(bench.workspace, 65534, 65534)
    (bench.workspace / "code.py").unlink()
    (bench.workspace / "link").unlink()
    bench.record(Base(origin(bench)), restore=True)
    assert (bench.workspace / "code.py").stat().st_uid == 65534
    assert (bench.workspace / "link").lstat().st_uid == 65534


def test_a_commit_s_bytes_are_those_of_its_objects(bench: Bench, tmp_path: Path) -> None:
    """Attributes, filters and hooks of the repository have no part in a check-out."""
    repository, canary = origin(bench), tmp_path / "canary"
    (repository / "stored").write_bytes(b"$Id$\nline\n")
    git(repository, "add", "-A")
    (repository / ".gitattributes").write_text("* filter=evil ident text eol=crlf export-subst\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-qm", "more")
    (repository / ".git/info/attributes").write_text("* filter=evil ident eol=crlf\n")
    git(repository, "config", "filter.evil.smudge", f"touch {canary}")
    git(repository, "config", "core.fsmonitor", f"touch {canary}")
    for name in ("post-checkout", "post-index-change"):
        hook = repository / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
        hook.chmod(0o755)
    canary.unlink(missing_ok=True)
    with pytest.raises(StaleWorkspaceError, match=r"\.gitattributes, stored"):
        bench.record(Base(repository, "HEAD"))
    assert (bench.baseline / "tree/stored").read_bytes() == b"$Id$\nline\n"
    assert not canary.exists()


def test_a_sha256_repository_and_a_bare_one_have_commits_too(tmp_path: Path) -> None:
    """The object format and the kind of repository are the operator's."""
    bench = make_bench(tmp_path)
    repository = tmp_path / "modern"
    shutil.copytree(bench.workspace, repository, symlinks=True, ignore=lambda *_: {".git"})
    git(repository, "init", "-q", "--object-format=sha256")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "start")
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare"))
    assert len(bench.record(Base(tmp_path / "bare", "HEAD")).commit or "") == 64


@pytest.mark.parametrize("commit", ["nothing", "0" * 40, "HEAD^{tree}"])
def test_an_unknown_commit_is_a_configuration_error(bench: Bench, commit: str) -> None:
    """It names repository and commit, and what git said."""
    with pytest.raises(ConfigurationError, match="--base"):
        bench.record(Base(origin(bench), commit))


def test_a_base_is_read_from_its_text(tmp_path: Path) -> None:
    """A directory wins over a commit; a name with an option's dash is neither."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "with@sign").mkdir()
    assert parse_base("plain", tmp_path) == Base(tmp_path / "plain")
    assert parse_base("with@sign", tmp_path) == Base(tmp_path / "with@sign")
    assert parse_base("with@sign@v1", tmp_path) == Base(tmp_path / "with@sign", "v1")
    for text in ("nowhere", "nowhere@v1", "plain@", "plain@--help", "@"):
        with pytest.raises(ConfigurationError):
            parse_base(text, tmp_path)


def test_a_workspace_that_cannot_be_recorded_is_the_operator_s(tmp_path: Path) -> None:
    """Before any agent ran, a limit is a configuration error and no integrity refusal."""
    bench = make_bench(tmp_path, Scope(limits=Limits(files=2)))
    with pytest.raises(ConfigurationError, match="--exclude"):
        bench.record()


def test_a_bad_record_is_tampering(bench: Bench) -> None:
    """Whatever the record holds, it is read as one or refused."""
    bench.record()
    for data in (b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"exclude": 1}'):
        (bench.baseline / "baseline.json").write_bytes(data)
        with open_directory(bench.baseline) as directory, pytest.raises(TamperedStateError):
            open_baseline(directory)
