"""The import table: every module stands in it, and imports only what stands before it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent

# Read it as the way data goes: what is trusted and knows least stands first.
ORDER: Final = """
    bootstrap bootstrap.bind_receipt attempt_runner attempt_runner.inside
    bootstrap.errors bootstrap.mounts bootstrap.beneath bootstrap.files
    bootstrap.seal bootstrap.visit bootstrap.globs bootstrap.manifest bootstrap.differences
    bootstrap.signals bootstrap.proctable bootstrap.pidfd bootstrap.reaper bootstrap.output
    bootstrap.launch bootstrap.processes bootstrap.strays bootstrap.cells
    bootstrap.location bootstrap.place bootstrap.descent bootstrap.generation bootstrap.lock
    bootstrap.host bootstrap.statedir bootstrap.state
    bootstrap.chain bootstrap.logfile bootstrap.logread bootstrap.joblog bootstrap.logseal
    bootstrap.scorepath bootstrap.removal bootstrap.wipe
    bootstrap.live bootstrap.freeze bootstrap.identity bootstrap.sweep
    bootstrap.prepare bootstrap.entrypoint
    attempt_runner.settings attempt_runner.resolve attempt_runner.jobfile
    attempt_runner.joblist attempt_runner.workers
    attempt_runner.status attempt_runner.isolate attempt_runner.canary attempt_runner.sockets
    attempt_runner.leftovers attempt_runner.tryout attempt_runner.probe
    attempt_runner.doctor attempt_runner.layout attempt_runner.users
    attempt_runner.scores attempt_runner.scores.score attempt_runner.scores.fields
    attempt_runner.scores.rules attempt_runner.scores.thresholds attempt_runner.scores.eval_archive
    attempt_runner.scores.*
    attempt_runner.scores.formats attempt_runner.scores.read attempt_runner.scores.served
    attempt_runner.git attempt_runner.copies attempt_runner.base attempt_runner.tree
    attempt_runner.coverage attempt_runner.restore attempt_runner.baseline
    attempt_runner.diff attempt_runner.proof attempt_runner.capture
    attempt_runner.evidence attempt_runner.gate
    attempt_runner.environment attempt_runner.confined attempt_runner.exchange attempt_runner.plan
    attempt_runner.enclosure
    attempt_runner.trial attempt_runner.start attempt_runner.role attempt_runner.children
    attempt_runner.change
    attempt_runner.scoring
    attempt_runner.attempt attempt_runner.resume attempt_runner.emit attempt_runner.story
    attempt_runner.tried attempt_runner.schedulers attempt_runner.course attempt_runner.failover
    attempt_runner.ci
    attempt_runner.collect
    attempt_runner.jobcheck attempt_runner.starter
    attempt_runner.lab attempt_runner.advice attempt_runner.report attempt_runner.report.model
    attempt_runner.report.timeline attempt_runner.report.render
    attempt_runner.keys attempt_runner.keyfiles attempt_runner.dsse attempt_runner.statement
    attempt_runner.attest attempt_runner.ledger attempt_runner.checkpoint
    attempt_runner.prune
    attempt_runner.cli attempt_runner.cli.*
    attempt_runner.__main__
""".split()  # noqa: SIM905 - a table of names reads better without quotes

# Imported outside the standard library: by these modules alone.
BORROWED: Final = {
    "typer": "attempt_runner.cli.",
    "filelock": "bootstrap.lock",
    "cryptography": "attempt_runner.keys",
    "securesystemslib": "attempt_runner.keys",
    "defusedxml": "attempt_runner.scores.junit",
    "tap": "attempt_runner.scores.tap",
    "jinja2": "attempt_runner.report.render",
    "backports": "attempt_runner.scores.eval_archive",
}
GATE_MAY_IMPORT: Final = {
    "bootstrap.bind_receipt",
    "bootstrap.errors",
    "bootstrap.files",
    "bootstrap.joblog",
    "bootstrap.state",
    "bootstrap.manifest",
    "attempt_runner.evidence",
}


def _modules() -> Iterator[tuple[str, Path]]:
    for package in ("bootstrap", "attempt_runner"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


MODULES: Final = dict(_modules())


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(_find_imports(path))


def _find_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (
                full if (full := f"{node.module}.{alias.name}") in MODULES else node.module
                for alias in node.names
            )


def _rank(module: str) -> int:
    if module in ORDER:
        return ORDER.index(module)
    return ORDER.index(module.rpartition(".")[0] + ".*")


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_stands_before_it(module: str) -> None:
    """No arrow points back in the table, and none leaves it."""
    for imported in set(_imports(MODULES[module])) & set(MODULES):
        if imported != module:
            assert _rank(imported) < _rank(module) or _is_sibling_help(imported, module), (
                f"{module} imports {imported}"
            )


def _is_sibling_help(imported: str, module: str) -> bool:
    return all(name.startswith("attempt_runner.cli.") for name in (imported, module))


def test_every_row_of_the_table_is_a_module() -> None:
    """A module that was removed leaves no row behind."""
    rows = [row for row in ORDER if not row.endswith(".*")]
    assert [row for row in rows if row not in MODULES] == []


def test_trusted_ground_imports_nothing_of_the_attempt() -> None:
    """What runs before any agent does not depend on what runs beside one."""
    for module, path in MODULES.items():
        if module.startswith("bootstrap"):
            assert not any(name.startswith("attempt_runner") for name in _imports(path)), module


@pytest.mark.parametrize("module", ["bootstrap.bind_receipt", "attempt_runner.inside"])
def test_a_file_that_crosses_a_boundary_imports_nothing_of_ours(module: str) -> None:
    """The binder and the shim are started by path, alone."""
    assert not {name.split(".")[0] for name in _imports(MODULES[module])} & {
        "bootstrap",
        "attempt_runner",
    }


def test_the_gate_imports_only_what_it_reads_with() -> None:
    """The gate compares; it has nothing at hand that starts or writes."""
    ours = {name for name in _imports(MODULES["attempt_runner.gate"]) if name in MODULES}
    assert ours <= GATE_MAY_IMPORT


@pytest.mark.parametrize(("library", "owner"), BORROWED.items())
def test_a_library_is_imported_by_its_owner_alone(library: str, owner: str) -> None:
    """Each borrowed library has one room."""
    users = {
        module
        for module, path in MODULES.items()
        if library in {name.split(".")[0] for name in _imports(path)}
    }
    assert {user for user in users if not user.startswith(owner)} == set()


def test_the_import_finder_sees_every_form() -> None:
    """The table's own test would be blind without this."""
    found = set(_imports(MODULES["attempt_runner.cli.app"]))
    assert {"typer", "typer.core", "attempt_runner.cli.output", "bootstrap"} <= found
