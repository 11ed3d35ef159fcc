"""The shim, started as it is in a job: what it becomes, what it gives up, how it fails."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from attempt_runner import inside
from tests.machine import landlock_abi, needs
from tests.someone import AGENT, common_ground

if TYPE_CHECKING:
    from pathlib import Path

SHIM: Final = (sys.executable, "-I", "-S", inside.__file__)

pytestmark = needs("linux")


def run(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Start the shim with flags, `--` and a command."""
    arguments: dict[str, object] = {"capture_output": True, "text": True, "timeout": 60}
    return subprocess.run((*SHIM, *args), check=False, **(arguments | options))  # type: ignore[call-overload,no-any-return]


def run_confined(*args: str, script: str) -> subprocess.CompletedProcess[str]:
    """Start a shell script in a Landlock domain."""
    return run("--landlock", "on", "--device", "/dev/null", *args, "--", "/bin/sh", "-c", script)


def test_the_command_gets_its_arguments_and_returns_its_status() -> None:
    """Arguments arrive as they were given, bytes that are no UTF-8 included; so does the status."""
    script = 'printf "%s|" "$@"; exit 7'
    argv = [*map(os.fsencode, SHIM), b"--", b"/bin/sh", b"-c", script.encode(), b"sh"]
    done = subprocess.run([*argv, b"-x", b"", b"\xff"], capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"-x||\xff|", 7)


def test_the_environment_is_what_was_given() -> None:
    """The interpreter's own addition to a bare environment does not reach the command."""
    assert run("--", "/usr/bin/env", env={"A": "1"}).stdout == "A=1\n"
    assert run("--", "/usr/bin/env", env={"LC_CTYPE": "C"}).stdout == "LC_CTYPE=C\n"


def test_a_program_is_looked_up_in_the_path_it_was_given(tmp_path: Path) -> None:
    """The first entry of PATH that holds the program wins; one that is missing is passed over."""
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    assert run("--", "tool", env={"PATH": f"/nowhere:{tmp_path}"}).stdout == "found\n"


def test_signals_are_as_a_command_expects_them() -> None:
    """SIGPIPE and SIGXFSZ, which the interpreter ignores, have their default action again."""
    status = run("--", "/bin/cat", "/proc/self/status").stdout
    ignored = int(re.findall(r"SigIgn:\t(\w+)", status)[0], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored >> number - 1 & 1
    assert "SigBlk:\t0000000000000000" in status


def test_privileges_are_given_up_for_good() -> None:
    """No capability is left in any set, and no program can bring one back."""
    status = run("--", "/bin/cat", "/proc/self/status").stdout
    assert "NoNewPrivs:\t1" in status
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status


@needs("root")
def test_another_user_comes_without_groups() -> None:
    """The uid and gid are switched, every supplementary group is dropped."""
    done = run("--user", f"{AGENT}:{AGENT}", "--", "/usr/bin/id")
    assert done.stdout.split()[:3] == [f"uid={AGENT}", f"gid={AGENT}", f"groups={AGENT}"]


@needs("landlock")
def test_only_what_was_granted_can_be_written(tmp_path: Path) -> None:
    """Everything can be done in a granted directory, nothing beside it."""
    granted = tmp_path / "granted"
    granted.mkdir()
    script = f"cd {granted}; echo 1 > a; mv a b; mkdir d; mv b d; ln d/b e; rm -r d; echo > ../out"
    done = run_confined("--write", str(granted), script=script)
    assert [path.name for path in granted.iterdir()] == ["e"]
    assert not (tmp_path / "out").exists()
    assert "ermission denied" in done.stderr


@needs("landlock")
def test_a_single_file_can_be_granted(tmp_path: Path) -> None:
    """Rights that only a directory can have are not asked for on a file."""
    file, other = tmp_path / "file", tmp_path / "other"
    for path in (file, other):
        path.write_text("old")
    run_confined("--write", str(file), script=f"echo new > {file}; echo new > {other}")
    assert (file.read_text(), other.read_text()) == ("new\n", "old")


@needs("landlock")
def test_a_hidden_directory_cannot_be_read_and_all_else_can(tmp_path: Path) -> None:
    """What lies beside the hidden path at every level stays readable; a link does not help."""
    hidden, beside = tmp_path / "a" / "hidden", tmp_path / "a" / "beside"
    for path in (hidden, beside):
        path.mkdir(parents=True)
        (path / "file").write_text(path.name)
    (beside / "link").symlink_to(hidden / "file")
    script = f"cat {beside}/file {hidden}/file {beside}/link; ls /usr >/dev/null && echo listed"
    done = run_confined("--hide", str(hidden), script=script)
    assert done.stdout == "besidelisted\n"


@needs("landlock")
@pytest.mark.parametrize(("tcp", "reached"), [("on", True), ("off", False)])
def test_tcp_can_be_turned_off(tcp: str, *, reached: bool) -> None:
    """With `off` no connection is made, with `on` it is."""
    if landlock_abi() < 4:
        pytest.skip("machine lacks: Landlock ABI 4")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
        done = run("--landlock", tcp, "--", sys.executable, "-c", code)
    assert (done.returncode == 0) == reached


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (("--write", "/nowhere/at/all", "--landlock", "on"), "No such file"),
        (("--cgroup", "/nowhere"), "No such file"),
        (("--parent", "1"), "the runner is gone"),
        (("--user", "nobody"), "invalid literal"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_failure_is_told_on_the_status_descriptor(flags: tuple[str, ...], cause: str) -> None:
    """The command is not started; one line says why; the exit status is 125."""
    if "--landlock" in flags and landlock_abi() < 3:
        pytest.skip("machine lacks: landlock")
    reader, writer = os.pipe()
    done = run("--status", str(writer), *flags, "--", "/bin/echo", "ran", pass_fds=(writer,))
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        said = pipe.read()
    assert done.returncode == 125
    assert done.stdout == ""
    assert said.startswith("error: ")
    assert cause in said


def test_the_command_does_not_inherit_the_status_descriptor() -> None:
    """A command cannot claim that it was not started."""
    reader, writer = os.pipe()
    script = f"echo error: forged >&{writer}"
    run("--status", str(writer), "--", "/bin/sh", "-c", script, pass_fds=(writer,))
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        assert pipe.read() == "ready\n"


def test_the_command_dies_with_its_parent() -> None:
    """A runner that is killed takes along what it started."""
    code = (
        "import os, subprocess, sys; argv = [*sys.argv[1:], '--parent', str(os.getpid()), '--',"
        "'/bin/sh', '-c', 'echo up; exec sleep 60']; child = subprocess.Popen(argv); child.wait()"
    )
    argv = (sys.executable, "-c", code, *SHIM)
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()
        assert parent.stdout.read() == b""  # the end of the pipe: nobody holds it any more


@needs("root", "landlock")
def test_a_user_who_cannot_reach_the_interpreter_still_gets_the_command() -> None:
    """Paths are opened, and all modules loaded, before the user changes."""
    with common_ground(AGENT) as ground:
        flags = ("--user", f"{AGENT}:{AGENT}", "--landlock", "on", "--write", str(ground))
        done = run(*flags, "--", "/bin/sh", "-c", f"echo 1 > {ground}/f && cat {ground}/f")
        assert done.stdout == "1\n", done.stderr
