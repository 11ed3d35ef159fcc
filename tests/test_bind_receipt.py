"""The binder's verdicts: the eight cases of its test plan, and one file for each defect."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bootstrap import bind_receipt
from tests.binder import (
    DEFECTS,
    GOLDEN,
    PATIENCE,
    SUMS,
    Job,
    accepted,
    make_job,
    refused,
    rejected,
    run,
)
from tests.machine import needs, python39

if TYPE_CHECKING:
    from pathlib import Path

INTERPRETERS = [
    pytest.param((sys.executable, "-I"), id="isolated"),
    pytest.param((sys.executable, "-I", "-S"), id="no-site"),
    pytest.param((python39() or "", "-I", "-S"), id="python3.9", marks=needs("python3.9")),
]


@pytest.fixture(params=INTERPRETERS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """Return a job whose receipt another program made, judged by each interpreter."""
    return make_job(tmp_path, request.param)


def test_receipt_of_model_a_is_rejected_for_model_b(job: Job) -> None:
    """The diff is the same, and model B never scored it."""
    assert rejected(job.verify(model="model-b"), "model_id")


def test_receipt_of_an_earlier_generation_is_rejected(job: Job) -> None:
    """The same model in a recycled workspace has no receipt."""
    assert rejected(job.verify(workspace_gen="gen-2"), "workspace_generation")


def test_one_changed_diff_byte_is_rejected(job: Job) -> None:
    """The receipt judged other bytes than those that would be merged."""
    job.diff.write_bytes(job.diff.read_bytes().replace(b"len(values)\n", b"len(value )\n"))
    assert rejected(job.verify(), "diff_sha256")


def test_one_changed_prompt_byte_is_rejected(job: Job) -> None:
    """The change answers another question than the one that was asked."""
    job.prompt.write_bytes(job.prompt.read_bytes().replace(b".", b"!", 1))
    assert rejected(job.verify(), "prompt_sha256")


def test_fail_verdict_is_rejected(job: Job) -> None:
    """A fail is written as faithfully as a pass, and never accepted."""
    assert job.write(verdict="fail").status == 0
    assert rejected(job.verify(), "verdict")


def test_write_refuses_empty_reasons(job: Job) -> None:
    """A verdict without a reason makes no receipt, and leaves the old one alone."""
    before = job.receipt.read_bytes()
    job.reasons.write_text("[]")
    assert refused(job.write(), "reasons", "1 to 1000")
    assert job.receipt.read_bytes() == before


def test_removed_receipt_is_rejected(job: Job) -> None:
    """No receipt is no verdict."""
    job.receipt.unlink()
    assert rejected(job.verify(), "missing_receipt")


def test_same_four_fields_are_accepted(job: Job) -> None:
    """A receipt that the binder wrote is accepted for the attempt it was written for."""
    job.receipt.unlink()
    assert job.write().status == 0
    assert accepted(job.verify())


def test_plain_receipt_of_another_program_is_accepted(job: Job) -> None:
    """Six fields with digests of sha256sum are enough."""
    assert accepted(job.verify())


def test_receipt_without_attempt_id_is_rejected_where_one_is_expected(job: Job) -> None:
    """Silence about the attempt is no match, though every other field is."""
    assert rejected(job.verify(attempt_id="att-1"), "attempt_id")


def test_attempt_id_is_not_judged_where_none_is_expected(job: Job) -> None:
    """A caller that knows no attempt judges the other fields."""
    assert job.write(attempt_id="att-1").status == 0
    assert accepted(job.verify())
    assert accepted(job.verify(attempt_id="att-1"))
    assert rejected(job.verify(attempt_id="att-2"), "attempt_id")


def test_selftest_passes_alone_in_an_empty_directory(job: Job) -> None:
    """The file needs nothing beside it."""
    done = run(job.command("selftest"))
    assert (done.status, done.out, done.err) == (0, "selftest ok\n", "")


def test_every_defect_is_judged_as_its_file_is_named(job: Job) -> None:
    """Each interpreter reads the same verdict out of the same bytes, in one process."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import bind_receipt\n"
        "for path in sys.argv[2].split(':'):\n"
        "    attempt = ['--attempt-id', 'att-1'] if '/attempt_id--' in path else []\n"
        "    status = bind_receipt.main([*sys.argv[3:], '--receipt', path, *attempt])\n"
        "    print(status, flush=True)\n"
    )
    paths = ":".join(str(GOLDEN / name) for name in DEFECTS)
    alone = str(job.directory / "alone")
    done = run([*job.python, "-c", script, alone, paths, "verify", *job.flags()])
    assert done.out.splitlines() == [
        word for name in DEFECTS for word in (_line(name), str(int(_line(name) != "accept")))
    ]
    assert done.err == ""


def _line(name: str) -> str:
    fields = name.partition("--")[0]
    return fields if fields == "accept" else f"reject: {fields}"


def test_every_reject_name_of_a_receipt_has_a_file() -> None:
    """No name of the list goes untested; the files' own names need other files."""
    named = {field for name in DEFECTS for field in name.partition("--")[0].split(",")}
    elsewhere = {"missing_receipt", "receipt_file", "diff_file", "prompt_file"}
    assert named - {"accept"} == set(bind_receipt.REJECT_NAMES) - elsewhere
    assert len(DEFECTS) >= 100


def test_golden_digests_are_those_of_sha256sum() -> None:
    """The files are still the ones that another program hashed."""
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=GOLDEN,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert set(SUMS) == {"patch.diff", "prompt.md"}
