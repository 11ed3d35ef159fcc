"""The example image: its files pass linters, and its entrypoint and job work as in a container."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.machine import needs
from tests.someone import ROOT, common_ground, plain_python

IMAGE: Final = ROOT / "examples" / "image"
BIN: Final = Path(sys.executable).parent  # where development tools are installed
CAPABILITIES: Final = re.compile(r"cap_add: \[([A-Z_, ]+)\]")


def tool(name: str) -> str | None:
    """Return the path of a linter, or None."""
    return shutil.which(name, path=f"{BIN}:{os.environ.get('PATH', os.defpath)}")


def needs_tool(name: str) -> pytest.MarkDecorator:
    """Skip a test without a linter."""
    return pytest.mark.skipif(tool(name) is None, reason=f"machine lacks: {name}")


@needs_tool("hadolint")
def test_the_dockerfile_passes_its_linter() -> None:
    """No finding."""
    done = subprocess.run(
        (str(tool("hadolint")), "Dockerfile"),
        cwd=IMAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@needs_tool("check-jsonschema")
def test_the_compose_file_fits_the_schema() -> None:
    """The Compose specification's own schema."""
    argv = (str(tool("check-jsonschema")), "--builtin-schema", "vendor.compose-spec")
    done = subprocess.run((*argv, "compose.yaml"), cwd=IMAGE, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_tool("shellcheck")
def test_the_jobs_scripts_pass_their_linter() -> None:
    """No finding."""
    scripts = [str(path) for path in (IMAGE / "job").iterdir() if path.suffix == ""]
    subprocess.run((str(tool("shellcheck")), *scripts), check=True)


def instruction(name: str) -> list[str]:
    """Return an instruction of the Dockerfile that has the JSON form."""
    (line,) = re.findall(rf"^{name} (\[.*\])$", (IMAGE / "Dockerfile").read_text(), re.MULTILINE)
    words: list[str] = json.loads(line)
    return words


def container(base: Path) -> list[str]:
    """Return what makes a container of this machine: its root read-only, the image's volumes.

    PID 1 is the entrypoint itself, with the capabilities of the compose file and no others.
    """
    (added,) = CAPABILITIES.findall((IMAGE / "compose.yaml").read_text())
    words = [
        "bwrap",
        "--unshare-pid",
        "--unshare-ipc",
        "--as-pid-1",
        "--new-session",
        "--tmpfs",
        "/",
    ]
    for place in ("usr", "etc", *Path(sys.base_prefix).parts[1:2]):
        words += ["--ro-bind", f"/{place}", f"/{place}"]
    for link in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{link}"):
            words += ["--symlink", f"usr/{link}", f"/{link}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--perms", "1777"]
    words += ["--tmpfs", "/tmp"]  # noqa: S108 - a fresh one
    for path in (Path(sys.prefix), ROOT):
        for parent in reversed(path.parents[:-1]):
            words += ["--perms", "0755", "--dir", str(parent)]
        words += ["--ro-bind", str(path), str(path)]
    words += ["--bind", str(base / "workspace"), "/workspace"]
    words += ["--ro-bind", str(IMAGE / "job"), "/job"]
    words += ["--bind", str(base / "state"), "/var/lib/attempt-runner", "--remount-ro", "/"]
    words += ["--cap-drop", "ALL"]
    for name in added.split(", "):
        words += ["--cap-add", f"CAP_{name}"]
    return [*words, "--chdir", "/", "--clearenv", "--setenv", "MODEL_ID", "model-a"]


@needs("root", "bwrap")
@pytest.mark.skipif(plain_python() is None, reason="machine lacks: a Python for every user")
def test_the_job_is_accepted_as_it_would_be_in_a_container() -> None:
    """Entrypoint and command of the image, as PID 1, end in accept with the agent isolated."""
    with common_ground() as base:
        for name in ("workspace", "state"):
            (base / name).mkdir(mode=0o755 if name == "workspace" else 0o700)
        (base / "workspace" / "score.json").write_text('{"verdict": "pass"}')
        argv = [*container(base), "--setenv", "PATH", f"{BIN}:{os.defpath}", "--"]
        done = subprocess.run(
            [*argv, *instruction("ENTRYPOINT"), *instruction("CMD")],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert (done.stdout, done.returncode) == ("accept\n", 0), done.stderr
        assert not (base / "workspace" / "score.json").exists()
        (identity,) = base.glob("state/*/attempts/*/attempt.json")
        assert '"agent": "isolated"' in identity.read_text()
