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
    from attempt_runner.baseline import Baseline, Scope
    from attempt_runner.capture import Captured
    from attempt_runner.plan import Intent
    from attempt_runner.settings import Job
    from attempt_runner.trial import Trial
    from bootstrap.prepare import Ground
    from bootstrap.state import State

BASELINE: Final = "baseline"  # one a workspace: a new generation starts from a new one
TREE: Final = "tree"
CHECKOUT: Final = "checkout"


def baseline_step(
    ground: Ground, intent: Intent, *, always: bool = False
) -> Callable[[], Mapping[str, object]]:
    """Return what bootstrap does to record the starting point: without `--capture` none is left.

    `always` records it without, too: another attempt is to start from the same point.
    """
    if not intent.job.capture and not always:
        return lambda: _forget(ground)
    return lambda: _record(ground, intent)


def return_to_baseline(ground: Ground, intent: Intent) -> Mapping[str, object]:
    """Require the workspace to be as the job's first bootstrap recorded it, or put it back.

    Returns what the log says of it. Raises StaleWorkspaceError (77) for a workspace that
    differs, unless the job says `--restore`.
    """
    from attempt_runner.baseline import open_baseline, require_workspace

    with _open_baseline(ground.state) as directory:
        baseline = open_baseline(directory)
        scope, restore = _scope(intent.job), intent.job.restore
        restored = require_workspace(ground.workspace, directory, scope, restore=restore)
    return {**baseline.as_fields(), "restored": len(restored)}


def _forget(ground: Ground) -> Mapping[str, object]:
    """Remove an earlier generation's baseline: this one's changes are not counted from there."""
    remove_tree(ground.state.directory, BASELINE)
    return {}


def _record(ground: Ground, intent: Intent) -> Mapping[str, object]:
    from attempt_runner.baseline import record_baseline

    remove_tree(ground.state.directory, BASELINE)
    with make_directory(ground.state.directory, BASELINE) as directory:
        baseline = record_baseline(
            ground.workspace,
            directory,
            base=intent.base if intent.job.capture else None,
            scope=_scope(intent.job),
            restore=intent.job.restore,
        )
    return baseline.as_fields()


def baseline_of(state: State, job: Job) -> Baseline | None:
    """Return what a captured change is compared with.

    None without `--capture`. Raises ConfigurationError (78) where bootstrap recorded none.
    """
    if not job.capture:
        return None
    from attempt_runner.baseline import open_baseline

    with _open_baseline(state) as directory:
        return open_baseline(directory)


def seal_capture(trial: Trial) -> Captured:
    """Seal the workspace's change as the attempt's diff: step 10. Raises what `capture` does."""
    from attempt_runner.capture import Protection, capture

    protection = Protection(patterns=trial.job.protect, restore=trial.job.restore_protected)
    with _open_baseline(trial.ground.state) as directory:
        return capture(
            trial.ground.workspace,
            directory,
            trial.directory,
            scope=_scope(trial.job),
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
    from attempt_runner.capture import captured_tree
    from attempt_runner.tree import scoring_tree

    tree, writable = trial.exchange.path / TREE, trial.job.tree_writable
    if base is None or trial.job.capture:
        with _open_baseline(trial.ground.state) as directory:
            captured_tree(directory, patch, tree, writable=writable, scope=_scope(trial.job))
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


def _scope(job: Job) -> Scope:
    from attempt_runner.baseline import Scope
    from bootstrap.visit import Limits

    limits = Limits(files=job.max_files, size=job.max_bytes)
    return Scope(exclude=job.exclude, limits=limits, change=job.max_change)


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
