"""The pages in docs: generated ones are up to date, and every block of commands runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from attempt_runner.scores.score import ScoreRules, Source
from tests.jobs import clean_environment
from tests.machine import needs

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
TOP: Final = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")]
# Pages whose blocks need more than a clone: a test of their own runs them.
ELSEWHERE: Final = {
    "attestation.md": "test_docs_attestation.py",
    "scores.md": "test_docs_scores.py",
}
# Blocks that no test runs, fenced as ```console: what they need that a clone does not have.
NOT_RUN: Final = {
    "docs/job-image.md": 2,  # a container engine
    "CONTRIBUTING.md": 2,  # installs from an index; runs all these tests
}


def _fenced(page: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN_HERE: Final = [page for page in PAGES if page.name not in ELSEWHERE and _fenced(page, "sh")]


@needs("git", "landlock")
@pytest.mark.parametrize("page", RUN_HERE, ids=_name)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """Pasted one after the other at the top of a clone, and each command ends well."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(_fenced(page, "sh"))],
        cwd=ROOT,
        env=clean_environment()
        | {"PATH": path, "TMPDIR": str(tmp_path), "ATTEMPT_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in _fenced(page, "text"):
        assert line in done.stdout, line


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_that_is_run_elsewhere_is_run_there(page: str) -> None:
    """No page escapes by being listed."""
    assert f'"{page}"' in (ROOT / "tests" / ELSEWHERE[page]).read_text(encoding="utf-8")


def test_what_is_not_run_is_listed() -> None:
    """A block that nobody runs is known, with its reason."""
    found = {_name(page): len(_fenced(page, "console")) for page in (*PAGES, *TOP)}
    assert {name: count for name, count in found.items() if count} == NOT_RUN


@pytest.mark.parametrize(
    ("status", "verdict"), [("ok", "pass"), ("bad", "fail"), ("left out", "no_tests")]
)
def test_the_reader_that_contributing_shows_reads(status: str, verdict: str) -> None:
    """Whoever starts from the example starts from something that works."""
    (text,) = _fenced(ROOT / "CONTRIBUTING.md", "python")
    module: dict[str, Any] = {}
    exec(compile(text, "CONTRIBUTING.md", "exec"), module)  # noqa: S102 - our own page
    data = json.dumps({"results": [{"name": "adds", "status": status}]}).encode()
    rules = ScoreRules(nonce=None, attempt_id=None)
    assert module["read"](Source("file", data, ""), rules).verdict == verdict


def test_the_configuration_page_is_that_of_the_settings() -> None:
    """After a change of a setting: scripts/write_configuration.py."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "write_configuration.py", "--print"],
        cwd=ROOT,
        env=clean_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=_name)
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    """A page that was moved or renamed leaves no dead link."""
    links = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_page_is_reached_from_the_readme() -> None:
    """A page that nothing links to is read by nobody."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((docs/[^)#]+)", text))
    for page in PAGES:
        assert _name(page) in linked or _name(page.parent) in linked, page
