"""The change of a job: its baseline, what is captured of it, and the tree to score.

What only a job with a starting point needs is imported where it is used: a job without one
does not pay for it.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.gate import refusal
from bootstrap.errors import ConfigurationError, Finding
from bootstrap.files import Directory, make_directory, open_directory_beneath
from bootstrap.wipe import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attempt_runner.base import Base
    from attempt_runner.capture import Captured
    from attempt_runner.plan import Intent
    from attempt_runner.settings import Job
    from attempt_runner.trial import Trial
    from bootstrap.prepare import Ground
    from bootstrap.state import State

BASELINE: Final = "baseline"  # one a workspace: a new generation starts from a new one
TREE: Final = "tree"
CHECKOUT: Final = "checkout"


def baseline_step(ground: Ground, intent: Intent) -> Callable[[], Mapping[str, object]]:
    """Return what bootstrap does to record the starting point: nothing without `--capture`."""
    if not intent.job.capture:
        return dict
    return lambda: _record(ground, intent)


def _record(ground: Ground, intent: Intent) -> Mapping[str, object]:
    from attempt_runner.baseline import Scope, record_baseline

    remove_tree(ground.state.directory, BASELINE)
    with make_directory(ground.state.directory, BASELINE) as directory:
        baseline = record_baseline(
            ground.workspace,
            directory,
            base=intent.base,
            scope=Scope(exclude=intent.job.exclude),
            restore=intent.job.restore,
        )
    return baseline.as_fields()


def kind_of_baseline(state: State, job: Job) -> str | None:
    """Return what a captured change is compared with: `commit`, `copy` or `as-found`.

    None without `--capture`. Raises ConfigurationError (78) where bootstrap recorded none.
    """
    if not job.capture:
        return None
    from attempt_runner.baseline import open_baseline

    with _open_baseline(state) as directory:
        return open_baseline(directory).kind


def seal_capture(trial: Trial) -> Captured:
    """Seal the workspace's change as the attempt's diff: step 10. Raises what `capture` does."""
    from attempt_runner.baseline import Scope
    from attempt_runner.capture import Protection, capture

    protection = Protection(patterns=trial.job.protect, restore=trial.job.restore_protected)
    with _open_baseline(trial.ground.state) as directory:
        return capture(
            trial.ground.workspace,
            directory,
            trial.directory,
            scope=Scope(),
            protection=protection,
        )


def make_tree(trial: Trial, patch: Path) -> Path | None:
    """Make the scorer's tree in the exchange directory; None for a job without starting point.

    Raises RefusalError for a diff that does not apply: there is nothing to score.
    """
    base = trial.inputs.base
    if base is None and not trial.job.capture:
        return None
    from attempt_runner.tree import PatchRefusedError

    try:
        return _make_tree(trial, patch, base)
    except PatchRefusedError as error:
        found = Finding("missing_receipt", error.expected, error.found)
        raise refusal([found]) from error


def _make_tree(trial: Trial, patch: Path, base: Base | None) -> Path:
    from attempt_runner.baseline import Scope
    from attempt_runner.capture import captured_tree
    from attempt_runner.tree import scoring_tree

    tree, writable = trial.exchange.path / TREE, trial.job.tree_writable
    if base is None or trial.job.capture:
        with _open_baseline(trial.ground.state) as directory:
            captured_tree(directory, patch, tree, writable=writable, scope=Scope())
    else:
        scoring_tree(_directory_of(trial, base), patch, tree, writable=writable)
    return tree


def _directory_of(trial: Trial, base: Base) -> Path:
    """Return a base's directory, or check its commit out into one."""
    if base.commit is None:
        return base.path
    from attempt_runner.base import check_out

    with make_directory(trial.exchange, CHECKOUT) as checkout:
        check_out(base, checkout.path, trial.exchange.path)
        return checkout.path


def _open_baseline(state: State) -> Directory:
    try:
        return open_directory_beneath(state.directory, BASELINE)
    except FileNotFoundError as error:
        raise ConfigurationError(
            "--capture",
            expected="a baseline that bootstrap recorded",
            found="none",
            remedy="bootstrap with --capture, then attempt",
        ) from error
