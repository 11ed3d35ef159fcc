"""The change of a job: its starting point, its baseline, what is captured, the tree to score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attempt_runner.base import Base, check_out
from attempt_runner.baseline import Scope, open_baseline, record_baseline
from attempt_runner.capture import Captured, Protection, capture, captured_tree
from attempt_runner.tree import scoring_tree
from bootstrap.errors import ConfigurationError
from bootstrap.files import Directory, make_directory, open_directory_beneath
from bootstrap.wipe import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attempt_runner.plan import Intent
    from attempt_runner.settings import Job
    from attempt_runner.trial import Trial
    from bootstrap.prepare import Ground
    from bootstrap.state import State

BASELINE: Final = "baseline"  # one a workspace: a new generation starts from a new one
TREE: Final = "tree"


def baseline_step(ground: Ground, intent: Intent) -> Callable[[], Mapping[str, object]]:
    """Return what bootstrap does to record the starting point: nothing without `--capture`."""
    if not intent.job.capture:
        return dict
    return lambda: _record(ground, intent)


def _record(ground: Ground, intent: Intent) -> Mapping[str, object]:
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
    with _open_baseline(state) as directory:
        return open_baseline(directory).kind


def seal_capture(trial: Trial) -> Captured:
    """Seal the workspace's change as the attempt's diff: step 10. Raises what `capture` does."""
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

    Raises PatchRefusedError for a diff that does not apply.
    """
    tree, writable = trial.exchange.path / TREE, trial.job.tree_writable
    if trial.job.capture:
        with _open_baseline(trial.ground.state) as directory:
            captured_tree(directory, patch, tree, writable=writable, scope=Scope())
        return tree
    base = trial.inputs.base
    if base is None:
        return None
    if base.commit:
        with make_directory(trial.exchange, "checkout") as checkout:
            check_out(base, checkout.path, trial.exchange.path)
            base = Base(checkout.path)
    scoring_tree(base.path, patch, tree, writable=writable)
    return tree


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
