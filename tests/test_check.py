from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from attempt_runner.jobcheck import find_faults, find_line
from attempt_runner.plan import Caller
from attempt_runner.starter import KINDS, TO_WRITE, Kind, detect, write_starter
from tests.jobs import ROOT_COMMAND, clean_environment

# A person's file: ten lines with a mistake each, and what answers it.
MISTAKEN: Final = """\
[job]
workspace = "ws"
modle = "model-a"
model = "model a"
score-path = ["/scores"]
wait = "soon"
capture = "yes"

[agent]
agent-network = "none"
scorer = ["pytest"]

[scorer]
scorre = ["pytest"]
score-format = "junit-xml"
min-tests = 1.5
"""
ANSWERS: Final = [
    (3, "unknown key modle", "did you mean model?"),
    (4, "model", "spell it exactly as the provider does"),
    (5, "score-path", "write it relative to the workspace, without '..'"),
    (6, "wait", "write wait = 600"),
    (7, "capture", "write capture = true"),
    (10, "unknown value of agent-network none", "did you mean on?"),
    (11, "scorer", "move it to [scorer]"),
    (14, "unknown key scorre", "did you mean scorer?"),
    (15, "unknown value of score-format junit-xml", "did you mean junit?"),
    (16, "min-tests", "write min-tests = 1"),
]


def check(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one command in a directory."""
    return subprocess.run(
        [*ROOT_COMMAND, *words],
        capture_output=True,
        check=False,
        cwd=directory,
        env=clean_environment(),
        text=True,
    )


def faults_in(text: str, directory: Path = Path("/")) -> list[tuple[int, str, str]]:
    """Return line, subject and cure of what is wrong with a text."""
    who = Caller(directory, {}, 0)
    found = find_faults(directory / "job.toml", text.encode(), who)
    return [(fault.line, fault.what, fault.remedy) for fault in found]


def test_ten_mistakes_are_answered_at_once_each_with_line_and_cure() -> None:
    """Nobody has to run it ten times."""
    assert faults_in(MISTAKEN) == ANSWERS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[job]\nworkspace = "ws"\nmodel = my-model\n', 3),
        ("[job]\nworkspace = 1\nworkspace = 2\n", 3),
        ("[job\n", 1),
    ],
)
def test_a_syntax_error_has_the_line_that_the_parser_tells(text: str, line: int) -> None:
    """What is no TOML is not searched any further."""
    (fault,) = faults_in(text)
    assert fault[:2] == (line, "syntax")


def test_what_is_missing_is_told_where_it_belongs() -> None:
    """A table without its one required key."""
    assert faults_in("# mine\n\n[job]\nmodel = 'm'\n") == [
        (3, "workspace", 'add workspace = "DIR"')
    ]


def test_a_contradiction_is_found_once_each_value_is_good(tmp_path: Path) -> None:
    """What only the whole job shows comes last, with the line of the key that it names."""
    (tmp_path / "ws").mkdir()
    text = '[job]\nworkspace = "ws"\nmodel = "m"\n[scorer]\nthreshold = ["x"]\n'
    ((line, *_),) = faults_in(text, tmp_path)
    assert line in (0, 5)


@pytest.mark.parametrize(
    ("table", "key", "line"),
    [("job", "wait", 2), ("scorer", "wait", 5), ("", "scorer", 3), ("agent", "wait", 0)],
)
def test_a_key_is_found_in_its_own_table(table: str, key: str, line: int) -> None:
    """The same word elsewhere, or in a comment, is not it."""
    text = '[job]\n"wait" = 1\n[ scorer ]\n# wait = 3\n wait=2\nwaiting = 3\n'
    assert find_line(text, table, key) == line


def test_check_exits_by_what_it_found(tmp_path: Path) -> None:
    """78 with a line a fault on standard output, as a run with the same file would end."""
    (tmp_path / "job.toml").write_text(MISTAKEN)
    done = check(tmp_path, "check", "job.toml")
    assert done.returncode == 78
    lines = done.stdout.splitlines()
    assert lines[0].startswith("job.toml:3: unknown key modle: expected model, got modle; ")
    assert len(lines) == len(ANSWERS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_is_toml_whose_every_key_is_explained(kind: Kind, tmp_path: Path) -> None:
    """Each key has a comment above it, and the file passes its own check."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "prompt.md").write_text("do it")
    text = write_starter(kind, tmp_path / "ws", "m", "prompt.md")
    tables = tomllib.loads(text)
    lines = text.splitlines()
    for table, entries in tables.items():
        for key in entries:
            assert lines[find_line(text, table, key) - 2].startswith("# ")
    assert all(what.startswith("program ") for _, what, _ in faults_in(text, tmp_path))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("pytest.ini", "", "pytest"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", "pytest"),
        ("package.json", "{}", "npm"),
        ("requirements.txt", "inspect-ai==0.3\n", "inspect"),
        ("README", "pytest", "plain"),
    ],
)
def test_a_set_up_is_detected(name: str, text: str, kind: str, tmp_path: Path) -> None:
    """By files that such a project has."""
    (tmp_path / name).write_text(text)
    assert detect(tmp_path) == kind


def test_init_prints_the_one_command_to_run_next(tmp_path: Path) -> None:
    """What is still to be written is told first, on standard error."""
    (tmp_path / "ws").mkdir()
    done = check(tmp_path, "init", "--workspace", "ws", "--kind", "plain")
    assert done.returncode == 0
    assert done.stdout == f"attempt-runner check {tmp_path}/job.toml\n"
    assert "still to do" in done.stderr
    assert TO_WRITE["plain"][:40] in (tmp_path / "job.toml").read_text()


def test_init_never_writes_into_the_workspace_or_over_a_file(tmp_path: Path) -> None:
    """Nothing in the workspace is ever configuration, and nobody's file is lost."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "job.toml").write_text("mine")
    for out in ("ws/job.toml", "job.toml"):
        assert check(tmp_path, "init", "--workspace", "ws", "--out", out).returncode == 78
    assert (tmp_path / "job.toml").read_text() == "mine"
    assert list((tmp_path / "ws").iterdir()) == []
