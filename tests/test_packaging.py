from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from bootstrap import __version__
from tests.jobs import SCORER, Job, clean_environment, make_job
from tests.machine import needs, python39
from tests.someone import common_ground, plain_python

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
PACK: Final = ROOT / "scripts" / "build_pyz.py"
BARE: Final = Path(sys.base_prefix, "bin", "python3")  # holds nothing that we need
# What `pip install attempt-runner` may bring: three of the base, and what typer brings.
BASE: Final = {"typer", "filelock", "defusedxml"}
BROUGHT: Final = {"annotated-doc", "rich", "shellingham", "markdown-it-py", "mdurl", "pygments"}


def _run(*argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        check=False,
        cwd="/",
        env=clean_environment() | variables,
        text=True,
        timeout=500,
    )


def _build(out: Path, source: Path, *what: str) -> Path:
    done = _run(
        *(sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", out, source),
        SOURCE_DATE_EPOCH="1700000000",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and from it the wheel, as a release does."""
    for module in ("build", "hatchling", "packaging"):
        pytest.importorskip(module)
    return _build(tmp_path_factory.mktemp("dist"), ROOT)


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the one wheel that was built."""
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def pyz(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the wheel into an archive that every user may read."""
    return _pack(wheel, tmp_path_factory.mktemp("pyz") / "attempt-runner.pyz")


def _pack(wheel: Path, target: Path) -> Path:
    done = _run(sys.executable, PACK, wheel, target)
    assert done.returncode == 0, done.stderr
    return target


def _sources() -> Iterator[str]:
    for package in ("bootstrap", "attempt_runner"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(ROOT).as_posix()


def _names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as opened:
        return set(opened.namelist())


def test_the_wheel_holds_the_two_packages_whole_and_nothing_else(wheel: Path) -> None:
    """Modules, type markers, schemas and templates arrive; tests and scripts do not."""
    about = f"attempt_runner-{__version__}.dist-info"
    names = _names(wheel)
    assert {name for name in names if not name.startswith(about)} == set(_sources())
    assert {"bootstrap/py.typed", "attempt_runner/py.typed"} <= names
    assert f"{about}/entry_points.txt" in names


def test_the_sdist_holds_all_that_the_tests_need_and_no_cache(built: Path) -> None:
    """From an sdist one can build, test and read as from a clone."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"README.md", "SECURITY.md", "CHANGELOG.md", "pyproject.toml", "docs/scores.md"}
    wanted |= {"tests/test_packaging.py", "scripts/release", "examples/fix-a-bug/scorer.py"}
    assert (wanted | set(_sources())) <= names
    assert [name for name in names if "__pycache__" in name or "_cache/" in name] == []


def test_the_same_source_gives_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    """Whoever builds it again, elsewhere and later, has the same bytes to compare."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    (again,) = _build(tmp_path / "again", source, "--wheel").glob("*.whl")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_base_requires_three_libraries(wheel: Path) -> None:
    """What needs more stands behind an extra."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"attempt_runner-{__version__}.dist-info/METADATA").decode()
    required = re.findall(r"^Requires-Dist: ([A-Za-z0-9._-]+)(.*)$", text, re.MULTILINE)
    assert {name for name, rest in required if "extra ==" not in rest} == BASE
    assert f"\nVersion: {__version__}\n" in text


def test_the_wheel_works_installed_beside_its_dependencies_alone(
    wheel: Path, tmp_path: Path
) -> None:
    """Commands, module form and binder run from what pip made of the wheel, without an index."""
    place = tmp_path / "venv"
    assert _run(sys.executable, "-m", "venv", "--without-pip", place).returncode == 0
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    done = _run(*pip, "--no-index", "--no-deps", "--no-compile", wheel)
    assert done.returncode == 0, done.stderr
    _lend_dependencies(place)
    about = f"attempt-runner {__version__}\n"
    assert _run(python, "-I", "-m", "attempt_runner", "--version").stdout == about
    assert _run(place / "bin" / "attempt-runner", "--version").stdout == about
    assert _run(place / "bin" / "bind-receipt", "selftest").stdout == "selftest ok\n"
    lab = _run(place / "bin" / "attempt-runner", "lab")
    assert lab.returncode == 0, lab.stderr
    where = _run(python, "-I", "-c", "import attempt_runner; print(attempt_runner.__file__)")
    assert where.stdout.startswith(str(place))


def _lend_dependencies(place: Path) -> None:
    """Let an environment see the libraries of this one, without its editable installs."""
    import typer  # noqa: PLC0415 - only its place is wanted

    (site,) = place.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{Path(typer.__file__).parent.parent}\n")


@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_clean_install_brings_only_these(wheel: Path, tmp_path: Path) -> None:
    """The list of what the base install pulls in is short, and known."""
    place = tmp_path / "venv"
    assert _run(sys.executable, "-m", "venv", place).returncode == 0
    pip = (place / "bin" / "python", "-I", "-m", "pip", "--disable-pip-version-check")
    before = _run(*pip, "list", "--format=freeze").stdout
    done = _run(*pip, "install", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    after = _run(*pip, "list", "--format=freeze").stdout
    brought = {line.partition("==")[0].lower() for line in set(after.split()) - set(before.split())}
    assert brought == BASE | BROUGHT | {"attempt-runner"}


def test_the_archive_holds_the_base_and_what_it_brings(wheel: Path, tmp_path: Path) -> None:
    """The archive is pure, packs what a clean install has, and comes out the same twice."""
    done = _run(sys.executable, PACK, wheel, tmp_path / "one.pyz")
    assert done.returncode == 0, done.stderr
    packed = re.findall(r"(?:with|,) ([\w.-]+) [\d.]+", done.stdout)
    assert {name.lower() for name in packed} == BASE | BROUGHT
    names = _names(tmp_path / "one.pyz")
    assert _names(wheel) <= names
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []
    again = _pack(wheel, tmp_path / "two.pyz")
    assert again.read_bytes() == (tmp_path / "one.pyz").read_bytes()


@pytest.mark.parametrize("isolation", ["none", pytest.param("landlock", marks=needs("landlock"))])
def test_the_archive_runs_a_job_on_a_bare_interpreter(
    pyz: Path, job: Job, isolation: str, tmp_path: Path
) -> None:
    """What is started by path works from the archive, and nothing stays behind in TMPDIR."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    words = job.run_words("--agent", job.agent(), "--isolation", isolation)
    done = _run(BARE, "-I", pyz, words[0], *job.arguments(), *words[1:], TMPDIR=str(scratch))
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr
    assert list(scratch.iterdir()) == []


@needs("root", "bwrap", "landlock")
@pytest.mark.skipif(plain_python() is None, reason="machine lacks: a Python for every user")
@pytest.mark.parametrize("isolation", ["uid+landlock", "bwrap+landlock"])
def test_the_archive_serves_an_agent_of_another_user(pyz: Path, isolation: str) -> None:
    """The shim is unpacked where the agent's user may read and not write it."""
    with common_ground() as ground:
        job = make_job(ground)
        os.chown(job.workspace, 2_900_001, 2_900_001)
        script = ground / "attempt-runner.pyz"
        script.write_bytes(pyz.read_bytes())
        scorer = [str(plain_python()), "-I", str(job.script("score.py", SCORER)), "pass"]
        words = job.run_words(
            *("--user-pool", "2900001-2900002", "--isolation", isolation), scorer=scorer
        )
        done = _run(plain_python(), "-I", script, words[0], *job.arguments(), *words[1:])
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr


def test_the_archive_refuses_where_it_cannot_unpack(pyz: Path, tmp_path: Path) -> None:
    """No other place is taken in silence: 78, as for any configuration."""
    done = _run(BARE, "-I", pyz, "--version", TMPDIR=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("attempt-runner: TMPDIR: expected a writable directory, got ")


@needs("python3.9")
def test_the_archive_names_an_interpreter_that_is_too_old(pyz: Path) -> None:
    """An older image gets a sentence, not a traceback."""
    done = _run(python39(), "-I", pyz, "--version", TMPDIR=tempfile.gettempdir())
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("attempt-runner: Python: expected 3.11 or newer, got 3.9")
