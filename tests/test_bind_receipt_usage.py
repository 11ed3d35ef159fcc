"""The binder's command line: what it refuses, what it says, and when its line does not leave."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.binder import Done, Job, accepted, make_job, refused, run
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job that is accepted as it stands."""
    return make_job(tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "-",
        "--model",
        "a b",
        "a\n",
        "\na",
        "a\t",
        "a\x7f",
        "mod\u0435l",
        "\u202ea",
        "a" * 257,
    ],
)
@pytest.mark.parametrize("flag", ["model", "workspace_gen", "attempt_id"])
def test_malformed_identifier_is_bad_usage(job: Job, flag: str, value: str) -> None:
    """It is equal to nothing, whatever the receipt says, and makes no receipt."""
    named = "--" + flag.replace("_", "-")
    assert refused(job.verify(**{flag: value}), named)
    assert refused(job.write(**{flag: value}), named)


def test_identifier_that_is_no_unicode_is_bad_usage(job: Job) -> None:
    """Bytes that no encoding explains are shown escaped."""
    argv = job.command("verify", *job.flags(receipt=str(job.receipt), model=None))
    done = run([*argv, "--model", os.fsdecode(b"a\xff")])
    assert refused(done, "--model", "'a\\udcff'")


@pytest.mark.parametrize("flag", ["diff", "prompt", "model", "workspace_gen", "receipt"])
def test_verify_needs_each_flag_with_a_value(job: Job, flag: str) -> None:
    """A flag that is missing, empty, given twice or at the end without value is bad usage."""
    named = "--" + flag.replace("_", "-")
    whole = {"receipt": str(job.receipt)}
    assert refused(job.verify(**{**whole, flag: None}), f"no {named}")
    assert refused(job.verify(**{**whole, flag: ""}), named, "expected a value")
    argv = job.command("verify", *job.flags(**whole))
    assert refused(run([*argv, named, "model-a"]), "each once", named)
    assert refused(run([*argv, f"{named}=model-a"]), "each once", named)
    argv = job.command("verify", *job.flags(**{**whole, flag: None}))
    assert refused(run([*argv, named]), named, "expected a value")


@pytest.mark.parametrize(
    "words",
    [
        [],
        [""],
        ["check"],
        ["VERIFY"],
        ["--diff", "x"],
        ["verify", "write"],
        ["verify", "--"],
        ["verify", "--mod", "model-a"],
        ["verify", "--model-a"],
        ["verify", "-d", "x"],
        ["verify", "--verdict", "pass"],
        ["verify", "x\nreject: none\n::error::x\x1b[2Kaccept"],
        ["write"],
        ["write", "--receipt", "x"],
        ["write", "--verdict", "PASS"],
        ["write", "--verdict", "pass\n"],
        ["selftest", "--attempt-id", "a"],
        ["selftest", "x"],
    ],
)
def test_bad_usage(job: Job, words: list[str]) -> None:
    """One printable line on standard error, nothing on standard output, status 2."""
    done = run(job.command(*words))
    assert refused(done, "expected", "got", "--help")
    assert done.err.rstrip("\n").isprintable()


def test_flag_and_value_may_be_one_word(job: Job) -> None:
    """So a path that begins with a dash, or holds a `=`, can be named."""
    (job.directory / "-a=b").write_bytes(job.diff.read_bytes())
    here = job.flags(receipt=str(job.receipt), diff=None)
    assert accepted(run(job.command("verify", *here, "--diff=-a=b"), cwd=job.directory))


@pytest.mark.parametrize("flag", ["diff", "prompt", "receipt"])
def test_help_as_a_value_is_no_help(job: Job, flag: str) -> None:
    """A path that an agent chose must not turn a verification into exit 0."""
    done = job.verify(**{"receipt": str(job.receipt), flag: "--help"})
    assert done.status == 1
    assert done.out.startswith("reject: ")


@pytest.mark.parametrize("words", [[], ["verify"], ["write"], ["selftest"]])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_stands_alone(job: Job, words: list[str], flag: str) -> None:
    """Each command's help is whole, fits a terminal, and tells every flag and every status."""
    done = run(job.command(*words, flag))
    assert (done.status, done.err) == (0, "")
    assert all(len(line) <= 100 for line in done.out.splitlines())
    assert done.out.startswith(" ".join(["usage: bind-receipt", *words]))
    told = set(re.findall(r"--[a-z-]+", done.out)) - {"--help"}
    needed = set(re.findall(r"--[a-z-]+", run(job.command(*words)).err)) - {"--help"}
    assert needed <= told
    if words:
        assert "exit" in done.out.lower()


def _redirected(job: Job, redirection: str, *words: str) -> Done:
    return run(["sh", "-c", f'exec "$@" {redirection}', "sh", *job.command(*words)])


@pytest.mark.parametrize("closed", [">&-", "<&- >&-"])
@pytest.mark.parametrize("command", ["verify", "--help", "selftest"])
def test_closed_output_is_no_success(job: Job, closed: str, command: str) -> None:
    """What nobody could read was not said."""
    words = [command, *job.flags(receipt=str(job.receipt))] if command == "verify" else [command]
    done = _redirected(job, closed, *words)
    assert done.status == 1
    assert "Traceback" not in done.err


@needs("linux")
def test_full_output_is_no_success(job: Job) -> None:
    """`accept` is exit 0 only if the line left; the reason is one line."""
    done = _redirected(job, "> /dev/full", "verify", *job.flags(receipt=str(job.receipt)))
    assert done.status == 1
    assert done.err.startswith("bind-receipt: standard output: ")
    assert len(done.err.splitlines()) == 1


def test_reader_that_left_is_no_success(job: Job) -> None:
    """A pipe without a reader takes no verdict, and leaves no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    argv = job.command("verify", *job.flags(receipt=str(job.receipt)))
    errors = job.directory / "stderr"
    actions = [
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_OPEN, 2, str(errors), os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    child = os.posix_spawn(argv[0], argv, {}, file_actions=actions)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert len(errors.read_text().splitlines()) == 1


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", ">&- 2>&-"])
def test_refusal_keeps_its_status_without_standard_error(job: Job, redirection: str) -> None:
    """And never moves to standard output."""
    done = _redirected(job, redirection, "verify", "--model", "")
    assert (done.status, done.out) == (2, "")
    done = _redirected(job, redirection, "verify", *job.flags(receipt="none"))
    assert done.status == 1


def test_accept_does_not_need_standard_error(job: Job) -> None:
    """Nothing is to be said there."""
    done = _redirected(job, "2>&- <&-", "verify", *job.flags(receipt=str(job.receipt)))
    assert accepted(done)


def test_selftest_without_a_temporary_directory_fails(job: Job) -> None:
    """It says so in one line."""
    no_place = (
        "import sys, tempfile; tempfile.tempdir = '/nonexistent'; sys.path.insert(0, sys.argv[1])\n"
        "import bind_receipt; sys.exit(bind_receipt.main(['selftest']))\n"
    )
    done = run([*job.python, "-c", no_place, str(job.directory / "alone")])
    assert (done.status, done.err) == (1, "")
    assert re.fullmatch(r"selftest failed: [ -~]+\n", done.out)
