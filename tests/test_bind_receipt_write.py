"""`write`: a receipt appears whole and durable, or the old one stands and nothing is left."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest

from tests.binder import Done, Job, accepted, make_job, refused, run
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OLD = b"the old receipt\n"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job that has an older receipt."""
    job = make_job(tmp_path)
    job.receipt.write_bytes(OLD)
    return job


def _state(job: Job) -> dict[Path, tuple[int, int, int]]:
    status = {path: path.lstat() for path in [job.directory, *job.directory.rglob("*")]}
    return {path: (s.st_mode, s.st_ino, s.st_mtime_ns) for path, s in status.items()}


def test_receipt_replaces_the_old_one_and_nothing_else_appears(job: Job) -> None:
    """One new file beside what was there; another name of the old one keeps the old bytes."""
    os.link(job.receipt, job.directory / "second")
    names = set(os.listdir(job.directory))
    assert job.write() == Done(0, "", "")
    assert accepted(job.verify())
    assert set(os.listdir(job.directory)) == names
    assert (job.directory / "second").read_bytes() == OLD


def test_receipt_is_readable_by_a_gate_of_another_user(job: Job) -> None:
    """And writable by its owner alone, whatever the umask allows."""
    script = 'umask 0 && exec "$@"'
    flags = job.flags(verdict="pass", reasons_file=str(job.reasons), out=str(job.receipt))
    assert run(["sh", "-c", script, "sh", *job.command("write", *flags)]).status == 0
    assert stat.S_IMODE(job.receipt.stat().st_mode) == 0o644


def test_bare_name_is_written_into_the_working_directory(job: Job) -> None:
    """A path without a directory is one in the caller's."""
    flags = job.flags(verdict="fail", reasons_file=str(job.reasons), out="new.json")
    assert run(job.command("write", *flags), cwd=job.directory) == Done(0, "", "")
    assert b'"fail"' in (job.directory / "new.json").read_bytes()


def test_reasons_may_be_a_link(job: Job) -> None:
    """They are the operator's, as the prompt is."""
    job.reasons.symlink_to(job.reasons.rename(job.directory / "real.json"))
    assert job.write().status == 0


LONG = b'"' + "\u00e9".encode() * 4096 + b'"'


@pytest.mark.parametrize(
    ("reasons", "part"),
    [
        pytest.param(b"", "JSON", id="empty"),
        pytest.param(b"ok", "JSON", id="no json"),
        pytest.param(b'"ok"', "JSON array", id="string"),
        pytest.param(b'{"ok": 1}', "JSON array", id="object"),
        pytest.param(b"null", "JSON array", id="null"),
        pytest.param(b'["ok", 1]', "reasons", id="number inside"),
        pytest.param(b'["ok", ""]', "none blank", id="empty reason"),
        pytest.param(b'["ok", "\\u200b"]', "none blank", id="zero width"),
        pytest.param(b'["\\ud800"]', "surrogates", id="lone surrogate"),
        pytest.param(b'\xef\xbb\xbf["ok"]', "JSON", id="byte order mark"),
        pytest.param(b'["' + b"x" * 4097 + b'"]', "4096", id="long reason"),
        pytest.param(b'["ok"' + b',"ok"' * 1000 + b"]", "1000", id="1001 reasons"),
        pytest.param(b'["ok"]' + b" " * 1024 * 1024, "1048576", id="large file"),
        pytest.param(b"[" + LONG + (b"," + LONG) * 99 + b"]", "1048576", id="large receipt"),
    ],
)
def test_reasons_that_make_no_receipt(job: Job, reasons: bytes, part: str) -> None:
    """Anything but a JSON array of readable strings that fit is refused in one line."""
    job.reasons.write_bytes(reasons)
    before = _state(job)
    assert refused(job.write(), part)
    assert _state(job) == before


def test_reasons_of_another_kind_do_not_hang(job: Job) -> None:
    """A FIFO without a writer is no file of reasons."""
    job.reasons.unlink()
    os.mkfifo(job.reasons)
    before = _state(job)
    assert refused(job.write(), "--reasons-file", "not regular")
    assert _state(job) == before


def _link(job: Job) -> str:
    (job.directory / "link").symlink_to(job.receipt)
    return str(job.directory / "link")


def _dangling_link(job: Job) -> str:
    (job.directory / "link").symlink_to("nowhere")
    return str(job.directory / "link")


def _fifo(job: Job) -> str:
    os.mkfifo(job.directory / "fifo")
    return str(job.directory / "fifo")


def _second_name_of_the_prompt(job: Job) -> str:
    os.link(job.prompt, job.directory / "second")
    return str(job.directory / "second")


@pytest.mark.parametrize(
    "out",
    [
        _link,
        _dangling_link,
        _fifo,
        _second_name_of_the_prompt,
        lambda job: str(job.directory),
        lambda job: f"{job.directory}/",
        lambda job: f"{job.directory}/..",
        lambda job: f"{job.directory}/new/",
        lambda job: f"{job.directory}/none/receipt.json",
        lambda job: f"{job.receipt}/receipt.json",
        lambda job: str(job.diff),
        lambda job: str(job.reasons),
    ],
)
def test_out_that_a_rename_would_damage(job: Job, out: Callable[[Job], str]) -> None:
    """A link, a directory, a device, an input: refused, and left as it was."""
    path = out(job)
    before = _state(job)
    assert refused(job.write(out=path), "--out", "expected a new file or a regular one")
    assert _state(job) == before


@needs("root")
def test_out_that_is_a_device(job: Job) -> None:
    """Root's `--out /dev/null` must not turn the device into a file."""
    device = job.directory / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    assert refused(job.write(out=str(device)), "file type c")
    assert stat.S_ISCHR(device.lstat().st_mode)


# The driver stands in the child: a limit on the size of files fails the write at byte n as a
# full disk does, for every n, in one process.
FULL_AT_EACH_BYTE = """
import os, resource, sys
sys.path.insert(0, sys.argv[1])
import bind_receipt
receipt, size, argv = sys.argv[2], int(sys.argv[3]), sys.argv[4:]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in range(size + 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    status = bind_receipt.main(argv)
    with open(receipt, "rb") as file:
        kept = len(file.read())
    os.write(1, f"{limit} {status} {kept} {len(os.listdir(os.path.dirname(receipt)))}\\n".encode())
"""


def test_write_that_fails_at_each_byte_leaves_the_old_receipt(job: Job, tmp_path: Path) -> None:
    """No prefix of a receipt is ever seen under its name, and no temporary file stays."""
    assert job.write(out=str(tmp_path / "whole.json")).status == 0
    size = (tmp_path / "whole.json").stat().st_size
    flags = job.flags(verdict="pass", reasons_file=str(job.reasons), out=str(job.receipt))
    alone = str(job.directory / "alone")
    words = [alone, str(job.receipt), str(size), "write", *flags]
    done = run([*job.python, "-c", FULL_AT_EACH_BYTE, *words])
    names = len(os.listdir(job.directory))
    failed = [f"{limit} 77 {len(OLD)} {names}" for limit in range(size)]
    assert done.out.splitlines() == [*failed, f"{size} 0 {size} {names}"]
    assert len(done.err.splitlines()) == size


@needs("root", "mount")
def test_full_disk_leaves_the_old_receipt(job: Job) -> None:
    """A real filesystem without a free block: one line, status 77, nothing half-written."""
    disk = job.directory / "disk"
    disk.mkdir()
    flags = job.flags(verdict="pass", reasons_file=str(job.reasons), out=str(disk / "receipt.json"))
    script = (
        'mount -t tmpfs -o size=64k tmpfs "$0" && cd "$0" && echo old > receipt.json\n'
        "dd if=/dev/zero of=fill bs=4k 2>/dev/null\n"
        '"$@"; echo "status $?"; cat receipt.json; ls -A\n'
    )
    argv = ["unshare", "--mount", "/bin/sh", "-c", script, str(disk)]
    done = run([*argv, *job.command("write", *flags)])
    assert done.out == "status 77\nold\nfill\nreceipt.json\n"
    assert "No space left on device" in done.err
    assert len(done.err.splitlines()) == 1


def _trace(job: Job, *options: str) -> tuple[Done, list[tuple[str, str]]]:
    trace = job.directory.parent / "trace"
    flags = job.flags(verdict="pass", reasons_file=str(job.reasons), out=str(job.receipt))
    calls = "trace=fsync,fdatasync,/^rename"
    argv = ["strace", "-f", "-y", "-o", str(trace), "-e", calls, *options]
    done = run([*argv, *job.command("write", *flags)])
    return done, re.findall(r"(fsync|fdatasync|rename\w*)\((.*)\) = (?:0|-1)", trace.read_text())


@needs("strace")
def test_receipt_is_on_disk_before_it_has_its_name_and_before_we_return(job: Job) -> None:
    """File synced, renamed, directory synced, in this order: what a power cut must find."""
    done, calls = _trace(job)
    assert done == Done(0, "", "")
    assert [name.rstrip("at2") for name, _ in calls] == ["fsync", "rename", "fsync"]
    assert "/.bind-receipt-" in calls[0][1]
    assert calls[2][1].endswith(f"<{job.directory}>")


@needs("strace")
@pytest.mark.parametrize("fault", ["fsync:error=EIO:when=1", "/^rename:error=EROFS"])
def test_io_error_leaves_the_old_receipt(job: Job, fault: str) -> None:
    """The kernel's refusal is one line and status 77; the old receipt stands."""
    names = set(os.listdir(job.directory))
    done, _ = _trace(job, "-e", f"inject={fault}")
    assert (done.status, done.out) == (77, "")
    assert re.fullmatch(r"bind-receipt: [ -~]+\n", done.err)
    assert job.receipt.read_bytes() == OLD
    assert set(os.listdir(job.directory)) == names


@needs("strace")
def test_directory_that_cannot_be_synced_is_no_success(job: Job) -> None:
    """The receipt may vanish with the power: the caller must not build on it."""
    done, _ = _trace(job, "-e", "inject=fsync:error=EIO:when=2")
    assert (done.status, done.out) == (77, "")
