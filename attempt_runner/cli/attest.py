"""`attest`: sign what the gate accepts, so that another machine can check it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from attempt_runner.cli.gate import load
from attempt_runner.cli.jobs import caller, open_workspace_state
from attempt_runner.cli.options import Attempt, StateDir, Workspace
from attempt_runner.cli.output import complain, write_result
from attempt_runner.cli.signing import hold_key
from attempt_runner.emit import open_place
from attempt_runner.gate import judge_evidence
from bootstrap.files import write_replacing

if TYPE_CHECKING:
    from attempt_runner.gate import Accepted

WEAK: Final = (
    "the agent of this attempt ran as this user, under isolation none: "
    "it could have read any key that this user can read"
)
_MODE: Final = 0o644  # for everybody to check


def command(
    attempt: Attempt,
    workspace: Workspace,
    key: Annotated[
        Path, typer.Option(metavar="KEY", help="Private key: PEM of PKCS#8, or OpenSSH's form.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Attestation to write, outside the workspace.")
    ],
    state_dir: StateDir = None,
    *,
    test_result: Annotated[
        bool,
        typer.Option(
            "--test-result",
            help="Beside FILE write FILE's name with .test-result: in-toto's test-result.",
        ),
    ] = False,
    as_bundle: Annotated[
        bool, typer.Option("--bundle", help="Write Sigstore bundles, not bare DSSE envelopes.")
    ] = False,
) -> int:
    """Sign an accepted attempt as an in-toto statement in a DSSE envelope.

    The gate judges the attempt first; what it rejects is not signed: 1. Check the file on
    another machine with `verify-attestation`. Needs the extra [sign].
    """
    who = caller()
    with open_workspace_state(workspace, state_dir, who) as state:
        accepted = judge_evidence(load(state, attempt, who), "decided", {})
        files = _sign(accepted, key, state.workspace, test_result=test_result, as_bundle=as_bundle)
        target = Path(os.path.abspath(out))
        with open_place(target, state.workspace) as place:
            for mark, data in files.items():
                write_replacing(place, f"{target.stem}{mark}{target.suffix}", data, _MODE)
    write_result(f"attested {accepted.attempt_id}\n")
    return 0


def _sign(
    accepted: Accepted, path: Path, workspace: Path, *, test_result: bool, as_bundle: bool
) -> dict[str, bytes]:
    """Return the attestations, each by what its file's name has before the suffix."""
    if accepted.evidence.identity.isolation.get("agent") == "not isolated":
        complain(WEAK)
    key = hold_key(path, workspace)
    from attempt_runner.attest import attest, attest_result  # noqa: PLC0415 - as hold_key

    files = {"": attest(accepted, key, as_bundle=as_bundle)}
    if test_result:
        files[".test-result"] = attest_result(accepted, key, as_bundle=as_bundle)
    return files
