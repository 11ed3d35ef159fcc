"""The gate: what it refuses by name, what it never does, and what its caller adds to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner.gate import ORDER, refusal
from bootstrap.errors import Finding
from bootstrap.files import open_directory
from bootstrap.joblog import JobLog
from tests.jobs import DIFF, ROOT_COMMAND, Job, clean_environment, make_job
from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run one accepted job; whoever changes something of it puts it back."""
    job = make_job(tmp_path_factory.mktemp("accepted"))
    assert job.run("--base", str(job.base)).stdout == "accept\n"
    return job


@contextmanager
def kept(*paths: Path) -> Iterator[None]:
    """Put back whatever stood at some paths before."""
    aside = [path.with_name(f"{path.name}.kept") for path in paths]
    for path, copy in zip(paths, aside, strict=True):
        shutil.copy2(path, copy)
    try:
        yield
    finally:
        for path, copy in zip(paths, aside, strict=True):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
            copy.rename(path)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a file of the state's, whatever its mode."""
    path.chmod(0o600)
    path.write_bytes(change(path.read_bytes()))


def with_keys(**keys: object) -> Callable[[bytes], bytes]:
    """Return a change of a JSON object's keys, in the spelling of a receipt."""

    def change(data: bytes) -> bytes:
        document = json.loads(data) | keys
        return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()

    return change


RECEIPTS: Final[dict[str, tuple[Callable[[bytes], bytes], str]]] = {
    "not json": (lambda data: data[:-4], "receipt_json"),
    "duplicate": (lambda data: data.replace(b"{", b'{"verdict": "fail",', 1), "receipt_json"),
    "deep": (lambda _: b"[" * 100_000, "receipt_json"),
    "bom": (lambda data: b"\xef\xbb\xbf" + data, "receipt_json"),
    "too large": (lambda data: data + b" " * (1 << 20), "receipt_file"),
    "a list": (lambda _: b"[]", "receipt_type"),
    "empty": (lambda _: b"", "receipt_json"),
    "another key": (with_keys(extra=1), "receipt_keys"),
    "another version": (with_keys(receipt_version=2), "receipt_version"),
    "another diff": (with_keys(diff_sha256="0" * 64), "diff_sha256,job_log"),
    "another prompt": (with_keys(prompt_sha256="0" * 64), "prompt_sha256,job_log"),
    "another model": (with_keys(model_id="model-b"), "model_id,job_log"),
    "another generation": (with_keys(workspace_generation="g"), "workspace_generation,job_log"),
    "another attempt": (with_keys(attempt_id="att-other"), "attempt_id,job_log"),
    "no attempt": (with_keys(attempt_id=None), "attempt_id,job_log"),
    "fail": (with_keys(verdict="fail"), "verdict,job_log"),
    "verdict true": (with_keys(verdict=True), "verdict,job_log"),
    "no reasons": (with_keys(reasons=[]), "reasons,job_log"),
    "all of it": (
        with_keys(diff_sha256="0", model_id="m", verdict="fail", reasons=[" "]),
        "diff_sha256,model_id,verdict,reasons,job_log",
    ),
    "one space more": (lambda data: data + b" ", "job_log"),
}


@pytest.mark.parametrize("kind", RECEIPTS)
def test_a_receipt_that_was_changed_is_named_for_what_differs(accepted: Job, kind: str) -> None:
    """Content first, by the binder's names; its digest in the log besides."""
    change, fields = RECEIPTS[kind]
    receipt = accepted.attempts[0] / "receipt.json"
    with kept(receipt):
        rewrite(receipt, change)
        assert accepted.judged(accepted.last) == f"reject: {fields}"
    assert accepted.judged(accepted.last) == "accept"


KINDS: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "missing": (lambda _: None, "missing_receipt"),
    "link": (lambda path: path.symlink_to("receipt.json.kept"), "receipt_file"),
    "hard link": (lambda path: path.hardlink_to(f"{path}.kept"), "receipt_file"),
    "fifo": (os.mkfifo, "receipt_file"),
    "directory": (os.mkdir, "receipt_file"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_receipt_of_another_kind_is_no_receipt(accepted: Job, kind: str) -> None:
    """It is opened without following a link and without waiting for a writer."""
    make, field = KINDS[kind]
    receipt = accepted.attempts[0] / "receipt.json"
    with kept(receipt):
        receipt.unlink()
        make(receipt)
        assert accepted.judged(accepted.last) == f"reject: {field}"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("workspace/change.diff", "diff_sha256"),
        ("prompt.md", "prompt_sha256"),
        ("patch.diff", "diff_sha256,inputs_changed,job_log"),
        ("prompt", "prompt_sha256,inputs_changed"),
    ],
)
def test_an_input_that_moved_is_named(accepted: Job, name: str, fields: str) -> None:
    """A live file with other bytes, or a sealed copy that is not what the log says."""
    live = name in ("workspace/change.diff", "prompt.md")
    path = (accepted.directory if live else accepted.attempts[0]) / name
    with kept(path):
        rewrite(path, lambda data: data + b"#")
        found = accepted.judged(accepted.last)
        assert found == f"reject: {fields.removesuffix(',job_log')}"
        path.unlink()
        gone = accepted.judged(accepted.last)
        if live:
            assert gone == f"reject: {fields.partition('_')[0]}_file"
        else:
            assert "inputs_changed" in gone
        path.touch()
        assert accepted.judged(accepted.last).startswith("reject: ")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("attempt.json", lambda data: data.replace(b"model-a", b"model-b"), "model_id,job_log"),
        ("attempt.json", lambda data: data[:-2], "77"),
        ("attempt.json", lambda data: data.replace(b'"scored"', b'"skored"'), "77"),
        ("../../generation.json", lambda data: data.replace(b"gen-", b"gen-2"), "77"),
        ("../../generation.json", lambda data: data[:-2], "77"),
        ("../../job-log.head", lambda data: data.replace(b'"seq":', b'"seq":1'), "77"),
        ("../../job-log.jsonl", lambda data: data[: data[:-1].rindex(b"\n") + 1], "77"),
        ("../../job-log.jsonl", lambda _: b"", "77"),
        ("../../job-log.jsonl", lambda data: data.replace(b"model-a", b"model-b"), "77"),
        ("../../job-log.jsonl", lambda data: data.replace(b'","', b'", "'), "77"),
    ],
    ids=[
        "model",
        "cut",
        "key",
        "generation",
        "generation cut",
        "head",
        "last line gone",
        "emptied",
        "line edited",
        "re-spelled",
    ],
)
def test_state_that_was_tampered_with_is_never_accepted(
    accepted: Job, name: str, change: Callable[[bytes], bytes], said: str
) -> None:
    """What contradicts the log is a reject; what is not the runner's own file holds the machine."""
    path, attempt = accepted.attempts[0] / name, accepted.last
    with kept(path):
        rewrite(path, change)
        assert accepted.judged(attempt).removeprefix("reject: ") == said


def test_a_log_that_was_tampered_with_is_named_by_its_line(accepted: Job) -> None:
    """`log --verify` names the first bad line and exits 77, with nothing on standard output."""
    log = accepted.state / "job-log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    changes = {
        "swapped": ([*lines[:3], lines[4], lines[3], *lines[5:]], 4),
        "repeated": ([*lines[:3], lines[2], *lines[3:]], 4),
        "dropped": ([*lines[:2], *lines[3:]], 3),
        "last dropped": (lines[:-1], len(lines)),
        "re-indented": ([*lines[:4], lines[4].replace(b":", b": "), *lines[5:]], 5),
    }
    for kind, (changed, number) in changes.items():
        with kept(log):
            log.write_bytes(b"".join(changed))
            done = accepted.command("log", "--verify")
        assert (done.returncode, done.stdout) == (77, ""), kind
        assert f"line {number}:" in done.stderr, (kind, done.stderr)


@pytest.mark.parametrize("event", ["rejected", "attempt_aborted", "consumed", "revoked"])
def test_a_voided_attempt_is_never_accepted_again(accepted: Job, event: str) -> None:
    """Whatever closed or used up an attempt after its accept is final."""
    with kept(accepted.state / "job-log.jsonl", accepted.state / "job-log.head"):
        with open_directory(accepted.state) as directory:
            JobLog(directory).append(event, attempt_id=accepted.last, model_id="model-a")
        assert accepted.judged(accepted.last) == "reject: attempt_state"


def test_a_second_accept_is_no_better_than_none(accepted: Job) -> None:
    """Each record of an attempt stands once: a repeated one is a log that disagrees."""
    for event in ("attempt_started", "inputs_sealed", "receipt_written", "accepted"):
        with kept(accepted.state / "job-log.jsonl", accepted.state / "job-log.head"):
            fields = dict(accepted.of(event))
            own = {k: v for k, v in fields.items() if k not in ("seq", "prev", "time", "event")}
            with open_directory(accepted.state) as directory:
                JobLog(directory).append(event, **own)
            assert accepted.judged(accepted.last).startswith("reject: "), event


def test_the_workspace_must_be_the_one_of_the_start(job: Job) -> None:
    """Another directory at the same path, with the same bytes in it, is another workspace."""
    assert job.run().stdout == "accept\n"
    job.workspace.rename(job.directory / "moved")
    shutil.copytree(job.directory / "moved", job.workspace)
    assert job.gate(job.last) == "reject: inputs_changed"
    shutil.rmtree(job.workspace)
    (job.directory / "moved").rename(job.workspace)
    assert job.gate(job.last) == "accept"


def test_the_gate_compares_what_its_caller_says(accepted: Job) -> None:
    """$MODEL_ID and $WORKSPACE_GEN, where set, and the evidence that --require names."""
    generation = str(accepted.of("generation_minted")["generation"])
    right = {"MODEL_ID": "model-a", "WORKSPACE_GEN": generation}
    assert accepted.command("gate", accepted.last, environ=right).stdout == "accept\n"
    for wrong, field in (
        ({"MODEL_ID": "model-b"}, "model_id"),
        ({"MODEL_ID": ""}, "model_id"),
        ({"WORKSPACE_GEN": generation + " "}, "workspace_generation"),
    ):
        done = accepted.command("gate", accepted.last, environ=right | wrong)
        assert (done.returncode, done.stdout) == (1, f"reject: {field}\n")
    demands = ("--require", "scored=tree", "--require")
    assert accepted.gate(accepted.last, *demands[:2]) == "accept"
    for demand in ("scored=diff", "no-such-name", "scored"):
        assert accepted.gate(accepted.last, *demands, demand) == "reject: isolation"
    assert accepted.gate(accepted.last, *demands, "x=") == "2"


def test_the_gate_takes_other_live_paths(accepted: Job, tmp_path: Path) -> None:
    """--diff and --prompt replace the frozen paths; one that is not there rejects."""
    copies = [shutil.copy(accepted.diff, tmp_path), shutil.copy(accepted.prompt, tmp_path)]
    flags = ("--diff", copies[0], "--prompt", copies[1])
    assert accepted.gate(accepted.last, *map(str, flags)) == "accept"
    (tmp_path / "link").symlink_to(copies[0])
    assert accepted.gate(accepted.last, "--diff", str(tmp_path / "link")) == "reject: diff_file"
    gone = str(tmp_path / "nowhere")
    said = accepted.gate(accepted.last, "--diff", gone, "--prompt", gone)
    assert said == "reject: diff_file,prompt_file"


@needs("git")
def test_another_diff_is_no_way_around_a_captured_workspace(job: Job) -> None:
    """Naming the sealed patch as the live diff leaves the workspace to be compared all the same."""
    job.diff.unlink()
    flags = [word for word in job.attempt_flags() if word not in ("--diff", str(job.diff))]
    agent = ("--agent", job.agent("open('app.py', 'w').write('x = 2\\n')"))
    words = (*flags, "--capture", *agent, "--model", "model-a", "--", *job.scorer())
    assert job.command("run", *words).stdout == "accept\n"
    patch = shutil.copy(job.attempts[0] / "patch.diff", job.directory / "copy.diff")
    assert job.gate(job.last, "--diff", str(patch)) == "accept"
    (job.workspace / "app.py").write_text("x = 3\n")
    moved = job.gate(job.last)
    assert moved.startswith("reject: ")
    assert job.gate(job.last, "--diff", str(patch)) == moved


def test_an_attempt_that_is_not_there_has_no_receipt(accepted: Job) -> None:
    """An unknown id rejects; what is no id at all is bad usage and never becomes a path."""
    unknown = accepted.last[:-1] + ("0" if accepted.last[-1] != "0" else "1")
    assert accepted.gate(unknown) == "reject: missing_receipt"
    for malformed in ("../" + accepted.last, accepted.last + "\n", "", accepted.last.upper()):
        assert accepted.gate(malformed) == "2"
    assert accepted.judged(accepted.last) == "accept"


def test_a_reject_without_consume_leaves_the_attempt_alone(job: Job) -> None:
    """A mistyped path must not kill an accepted attempt; with --consume a reject is final."""
    assert job.run().stdout == "accept\n"
    before = job.events
    assert job.gate(job.last, "--diff", "mistyped") == "reject: diff_file"
    assert job.events == before
    assert job.gate(job.last) == "accept"
    assert job.gate(job.last, "--consume", "--diff", "mistyped") == "reject: diff_file"
    assert job.events == [*before, "rejected"]
    assert job.gate(job.last) == "reject: attempt_state"


def test_a_mistyped_attempt_consumes_nothing(job: Job) -> None:
    """An id that is not there leaves no record: it must not use up the generation."""
    assert job.command("bootstrap", "--model", "model-a").returncode == 0
    unknown = f"att-20261130T214455Z-{'0' * 32}"
    assert job.gate(unknown, "--consume") == "reject: missing_receipt"
    words = [*job.attempt_flags(), "--", *job.scorer()]
    assert job.command("attempt", *words).stdout == "accept\n"


def test_emit_writes_the_very_bytes_that_were_verified(job: Job) -> None:
    """Atomically, in place of a file and of nothing else; never into the workspace."""
    assert job.run().stdout == "accept\n"
    out = job.directory / "clone"
    out.mkdir()
    emitted = out / "merge.diff"
    emitted.symlink_to(job.prompt)
    assert job.gate(job.last, "--emit", str(emitted)) == "78"
    assert job.prompt.read_text() == "Make x two.\n"
    emitted.unlink()
    emitted.write_text("yesterday's")
    assert job.gate(job.last, "--emit", str(emitted)) == "accept"
    assert emitted.read_text() == DIFF
    assert [path.name for path in out.iterdir()] == ["merge.diff"]
    assert job.gate(job.last, "--emit", str(job.workspace / "merge.diff")) == "78"
    (out / "inside").symlink_to(job.workspace)
    assert job.gate(job.last, "--emit", str(out / "inside" / "merge.diff")) == "78"
    (job.workspace / "planted").symlink_to(job.base)
    assert job.gate(job.last, "--emit", str(job.workspace / "planted" / "merge.diff")) == "78"
    assert [path.name for path in job.base.iterdir()] == ["app.py"]
    for bad in ("nowhere/merge.diff", "clone", "/"):
        assert job.gate(job.last, "--emit", bad) in ("77", "78", "2")
    job.diff.write_text("another")
    refused = out / "refused.diff"
    assert job.gate(job.last, "--emit", str(refused)) == "reject: diff_sha256"
    assert not refused.exists()


def test_an_attempt_is_consumed_once(job: Job) -> None:
    """--consume writes its record before it prints, with --emit in the same call."""
    assert job.run().stdout == "accept\n"
    out = job.directory / "merge.diff"
    assert job.gate(job.last, "--consume", "--emit", str(out)) == "accept"
    assert job.events[-1] == "consumed"
    receipt = (job.attempts[0] / "receipt.json").read_bytes()
    assert job.of("consumed")["receipt_sha256"] == sha256(receipt).hexdigest()
    out.unlink()
    again = job.gate(job.last, "--consume", "--emit", str(out))
    assert (again, out.exists()) == ("reject: attempt_state", False)
    assert job.gate(job.last) == "reject: attempt_state"


def test_of_twenty_racing_gates_one_accepts(job: Job) -> None:
    """The lock covers check and record, so that exactly one sees the attempt unconsumed."""
    assert job.run().stdout == "accept\n"
    gates = [job.start("gate", job.last, "--consume") for _ in range(20)]
    said = [gate.communicate(timeout=100)[0] for gate in gates]
    assert sorted(said) == ["accept\n"] + ["reject: attempt_state\n"] * 19
    assert sorted(gate.returncode for gate in gates) == [0] + [1] * 19
    assert job.events.count("consumed") == 1
    assert job.command("log", "--verify").returncode == 0


def test_a_new_generation_ends_all_earlier_attempts(job: Job) -> None:
    """Once the workspace is bootstrapped again, an attempt of its former life is stale."""
    assert job.run().stdout == "accept\n"
    first = job.last
    assert job.command("bootstrap", "--model", "model-a").returncode == 0
    assert job.gate(first) == "reject: attempt_state"
    assert job.interrupt("SIGKILL", "open", "job-log.jsonl", 2, *job.run_words()) == -9
    assert job.gate(first) == "reject: attempt_state"  # also under one that is pending


# Runs the gate's own two functions under an audit hook, and prints what they must not do.
AUDITED: Final = """\
import os, sys
from pathlib import Path
from attempt_runner.evidence import load_evidence
from attempt_runner.gate import judge_evidence
from bootstrap.files import open_directory
from bootstrap.state import open_state
workspace, root, attempt = sys.argv[1:]
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
harmless = {"open", "import", "os.listdir", "os.scandir", "object.__getattr__", "compile", "exec"}
seen = []
def hook(event, arguments):
    if event == "open" and not (arguments[2] or 0) & writing:
        return
    if event.partition(".")[0] not in ("ctypes", "sys", "marshal", "code") and (
        event == "open" or event not in harmless
    ):
        seen.append((event, arguments))
sys.addaudithook(hook)
with open_state(Path(workspace), Path(root), create=False, named=True) as state:
    with open_directory(Path(workspace)) as opened:
        evidence = load_evidence(
            state, attempt, opened, live_diff=None, live_prompt=None, claims={}
        )
        accepted = judge_evidence(evidence, "decided", {"scored": "tree"})
print(accepted.attempt_id, seen)
"""


def test_the_gate_opens_nothing_for_writing_and_starts_nothing(accepted: Job) -> None:
    """Under an audit hook: no write, no rename, no process, no socket, no signal."""
    arguments = [str(accepted.workspace), str(accepted.state_root), accepted.last]
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", AUDITED, *arguments],
        capture_output=True,
        check=False,
        env=clean_environment(),
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, f"{accepted.last} []\n"), done.stderr


TRACED: Final = (
    "trace=open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,symlink,"
    "symlinkat,mkdir,mkdirat,rmdir,truncate,ftruncate,fork,vfork,clone,clone3,execve,execveat,kill"
)


@needs("strace")
def test_the_gate_command_makes_no_system_call_that_changes_anything(
    accepted: Job, tmp_path: Path
) -> None:
    """What an audit hook cannot see, a trace can: one process that only opens for reading."""
    trace = tmp_path / "trace"
    python, *rest = ROOT_COMMAND
    words = [python, "-B", *rest, "gate", *accepted.arguments(), accepted.last]
    done = subprocess.run(
        ["strace", "-f", "-o", trace, "-e", TRACED, *words],
        capture_output=True,
        check=False,
        cwd=accepted.directory,
        env=clean_environment(),
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "accept\n")
    calls = [line.split(None, 1)[1] for line in trace.read_text().splitlines()]
    changing = [
        call
        for call in calls
        if not re.match(r"open(at|at2)?\(|execve\(|\+\+\+ exited", call)
        or re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", call)
    ]
    assert changing == []
    assert sum(call.startswith("execve(") for call in calls) == 1


def test_findings_are_one_a_field_in_the_printed_order() -> None:
    """The binder's names first, the runner's after; one of the first six stands alone."""
    findings = [Finding(name, "a", "b") for name in reversed(ORDER[6:])]
    assert refusal(findings).fields == ORDER[6:]
    assert refusal([*findings, *findings]).fields == ORDER[6:]
    for name in ORDER[:6]:
        assert refusal([*findings, Finding(name, "a", "b")]).fields == (name,)
    assert len(ORDER) == len(set(ORDER))
