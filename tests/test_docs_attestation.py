from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attempt_runner.dsse import PAYLOAD_TYPE
from attempt_runner.statement import PREDICATE_TYPE
from tests.machine import needs
from tests.signing import make_signed

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.signing import Signed

PAGE: Final = (Path(__file__).parent.parent / "docs" / "attestation.md").read_text("utf-8")
SCRIPTS: Final = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
RUN: Final = [text for text in SCRIPTS if not text.startswith("cosign")]


@needs("openssl", "jq")
def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    """Every command of the page but cosign's is run, in order, on a real attempt."""
    done = _run(make_signed(tmp_path), tmp_path, "".join(RUN))
    assert done.returncode == 0, done.stderr
    assert "\naccept\n" in done.stdout
    assert "Signature Verified Successfully" in done.stdout
    assert f"{tmp_path}/out/accepted.diff: OK" in done.stdout
    assert len(RUN) == len(SCRIPTS) - 1


def test_the_page_names_the_types_as_they_are() -> None:
    """A policy is written from the page."""
    assert f"--type {PREDICATE_TYPE} " in PAGE
    assert f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} %d " in PAGE


def _run(signed: Signed, directory: Path, script: str) -> CompletedProcess[str]:
    for name in ("out", "tmp"):
        (directory / name).mkdir()
    job = signed.job
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "ATTEMPT_STATE_DIR": str(job.state_root),
        "attempt": signed.attempt,
        "keys": str(directory / "made"),
        "ledger": str(directory / "ledger"),
        "model": "model-a",
        "out": str(directory / "out"),
        "prompt": str(job.prompt),
        "tmp": str(directory / "tmp"),
        "workspace": str(job.workspace),
    }
    return subprocess.run(
        ["sh", "-eu", "-c", script],
        capture_output=True,
        check=False,
        env=variables,
        text=True,
        timeout=100,
    )
