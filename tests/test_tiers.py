"""Whole jobs in every tier: an honest one is accepted, a cheat gains nothing by it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
import typer

from bootstrap.cells import find_cell
from bootstrap.files import open_directory
from bootstrap.identity import AttemptIdentity, read_identity
from tests.jobs import make_job, until
from tests.machine import landlock_abi, needs
from tests.someone import PLAIN, ROOT, as_plain, common_ground, plain_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    needs("linux"),
    pytest.mark.skipif(plain_python() is None, reason="machine lacks: a Python for every user"),
]
NEEDED: Final = {"landlock": "landlock", "bwrap": "bwrap", "uid": "root"}
TIERS: Final = ("none", "landlock", "bwrap", "uid", "bwrap+landlock", "uid+landlock")
LIBRARIES: Final = os.path.dirname(os.path.dirname(typer.__file__))
# The console script, for an interpreter that has not installed us.
START: Final = (
    f"import sys; sys.path[:0] = [{str(ROOT)!r}, {LIBRARIES!r}];"
    "from attempt_runner.__main__ import main; main()"
)
HONEST: Final = """\
cat > change.diff <<'END'
--- a/app.py
+++ b/app.py
@@ -1 +1 @@
-x = 1
+x = 2
END
"""
JUDGE: Final = """\
import json, os
diff = open(os.environ["DIFF_FILE"]).read()
score = {"verdict": "pass" if "+x = 2" in diff else "fail", "reasons": ["read it"],
         "nonce": os.environ["SCORE_NONCE"]}
json.dump(score, open(os.environ["SCORE_FILE"], "w"))
"""


def cases() -> list[object]:
    """Return each tier as root has it and as a plain user has it."""
    listed: list[object] = []
    for tier in TIERS:
        parts = [part for name, part in NEEDED.items() if name in tier]
        root = needs("root", *parts)
        listed.append(pytest.param((tier, False), id=f"root-{tier}", marks=root))
        if "uid" not in tier:
            plain = needs(*parts)
            listed.append(pytest.param((tier, True), id=f"plain-{tier}", marks=plain))
    return listed


in_every_tier = pytest.mark.parametrize("stage", cases(), indirect=True)
in_each_kind_of_tier = pytest.mark.parametrize(
    "stage",
    [
        pytest.param(("none", False), id="root-none", marks=needs("root")),
        pytest.param(("landlock", True), id="plain-landlock", marks=needs("landlock")),
        pytest.param(("bwrap", True), id="plain-bwrap", marks=needs("bwrap")),
        pytest.param(("uid", False), id="root-uid", marks=needs("root")),
    ],
    indirect=True,
)


class Stage:
    """A job that every user can reach, and who runs it in which tier."""

    def __init__(self, base: Path, tier: str, *, plain: bool) -> None:
        self.job = make_job(base)
        self.tier = tier
        self._plain = plain
        first = 2_000_000 + 2 * secrets.randbelow(1_000_000)
        self._pool = f"{first}-{first + 1}"
        self._switches = not plain and tier not in {"none", "landlock"}
        self._agent = first if self._switches else PLAIN if plain else 0
        self.job.diff.unlink()
        (base / "scratch").mkdir()
        (base / "scratch").chmod(0o711)
        (base / "state").mkdir(mode=0o700)
        if os.geteuid() == 0:
            for path in (self.job.workspace, *self.job.workspace.iterdir()):
                os.chown(path, self._agent, self._agent)
            if plain:
                for name in ("scratch", "state"):
                    os.chown(base / name, PLAIN, PLAIN)

    def start(self, agent: str, *flags: str, scorer: str) -> subprocess.Popen[str]:
        """Start one job: a shell script as agent, a Python text as scorer."""
        script = self.job.directory / "agent.sh"
        script.write_text(agent)
        program = self.job.script("scorer.py", scorer)
        users = ("--user-pool", self._pool) if self._switches else ()
        python = str(plain_python())
        words = (
            *("run", *self.job.arguments(), *self.job.attempt_flags(), "--model", "model-a"),
            *("--isolation", self.tier, *users, "--agent", f"/bin/sh {script}", *flags),
            *("--", python, "-I", str(program)),
        )
        before = (*as_plain(), python) if self._plain else (sys.executable,)
        return subprocess.Popen(
            (*before, "-I", "-c", START, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.job.directory,
            env={"PATH": os.defpath, "GITHUB_ENV": str(self.job.directory / "github_env")},
        )

    def run(self, agent: str, *flags: str, scorer: str) -> subprocess.CompletedProcess[str]:
        """Run one job to its end."""
        with self.start(agent, *flags, scorer=scorer) as process:
            output, errors = process.communicate(timeout=100)
            return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Lay out a job for the tier and user of a case."""
    tier, plain = request.param
    with common_ground(PLAIN if plain else None) as base:
        yield Stage(base, tier, plain=plain)


@in_every_tier
def test_an_honest_job_is_accepted(stage: Stage) -> None:
    """The same job, the same line; the evidence names the tier and what it kept."""
    done = stage.run(HONEST, scorer=JUDGE)
    assert done.stdout == "accept\n", done.stderr
    identity = (stage.job.state / "attempts" / stage.job.last / "attempt.json").read_text()
    assert f'"agent_tier": "{stage.tier}"' in identity
    assert stage.job.events[-1] == "accepted"


@in_each_kind_of_tier
def test_a_daemon_of_the_agents_is_dead_before_the_diff_is_sealed(stage: Stage) -> None:
    """It rewrites the diff for ever from a session of its own; what was sealed is what counts."""
    daemon = (
        "setsid sh -c 'while :; do echo broken > new; mv new change.diff; : > $TMPDIR/up; done'"
        " >/dev/null 2>&1 &\nwhile ! test -e $TMPDIR/up; do :; done\n"
    )
    done = stage.run(daemon + "exit 0", scorer=JUDGE)
    assert done.stdout == "reject: verdict\n", done.stderr
    sealed = (stage.job.state / "attempts" / stage.job.last / "patch.diff").read_text()
    assert sealed == "broken\n"
    assert stage.job.diff.read_text() == sealed


@in_each_kind_of_tier
def test_what_the_agent_plants_is_not_run_by_the_scorer(stage: Stage) -> None:
    """HOME, PATH, a .pth file, a module in the working directory and GITHUB_ENV lead nowhere."""
    plant = (
        f"cd {stage.job.workspace}\n"
        "mkdir -p $HOME/.local/lib bin\n"
        "echo 'raise SystemExit(99)' | tee json.py sitecustomize.py $HOME/usercustomize.py >x\n"
        "echo 'import os; os._exit(99)' > planted.pth\n"
        "printf '#!/bin/sh\\nexit 99\\n' > bin/sh; chmod +x bin/sh\n"
        "echo 'exit 99' > $HOME/.profile\n"
        'test -n "$GITHUB_ENV" && exit 98\n'
    )
    look = (
        'import os, subprocess\nassert "GITHUB_ENV" not in os.environ\n'
        'assert os.listdir(os.environ["HOME"]) == []\n'
        'assert "workspace" not in os.getcwd() + os.environ["PATH"]\n'
        'subprocess.run(["sh", "-lc", "true"], check=True)\n'
    )
    done = stage.run(plant + HONEST, scorer=look + JUDGE)
    assert done.stdout == "accept\n", done.stderr


@in_each_kind_of_tier
def test_an_agent_that_cuts_the_log_gains_nothing(stage: Stage) -> None:
    """It is refused by the kernel, or under none found out: never an accept without its records."""
    cut = f"for f in {stage.job.state_root}/*/job-log.jsonl; do (: > $f); done 2>/dev/null\n"
    done = stage.run(cut + HONEST, scorer=JUDGE)
    if stage.tier == "none":
        assert (done.stdout, done.returncode) == ("", 77), done.stderr
    else:
        assert done.stdout == "accept\n", done.stderr


@in_each_kind_of_tier
def test_an_agent_that_kills_its_runner_buys_no_second_try(stage: Stage) -> None:
    """The signal is refused; or, where it arrives, there is no accept and no 75."""
    done = stage.run(HONEST + "kill -TERM $PPID\nsleep 1\n", scorer=JUDGE)
    protected = stage.tier != "none" and (stage.tier != "landlock" or landlock_abi() >= 6)
    if protected:
        assert done.stdout == "accept\n", done.stderr
    else:
        assert done.returncode == 1
        assert done.stdout.startswith("reject: ")


@needs("landlock")
@pytest.mark.parametrize("stage", [("landlock", True)], ids=["plain"], indirect=True)
def test_a_required_promise_that_is_not_kept_starts_nothing(stage: Stage) -> None:
    """78, a line that begins with the tier, and no agent."""
    done = stage.run("touch ran", "--require", "metadata", scorer=JUDGE)
    assert (done.returncode, done.stdout) == (78, "")
    assert "isolation: landlock: " in done.stderr
    assert not (stage.job.workspace / "ran").exists()


@needs("landlock")
@pytest.mark.parametrize("stage", [("landlock", True)], ids=["plain"], indirect=True)
def test_a_prompt_in_the_workspace_is_refused(stage: Stage) -> None:
    """What the agent could rewrite for the next attempt is named before anything starts."""
    stage.job.prompt.rename(stage.job.workspace / "prompt.md")
    stage.job.prompt.symlink_to("workspace/prompt.md")
    done = stage.run("touch ran", scorer=JUDGE)
    assert done.returncode == 78
    assert "prompt.md" in done.stderr
    assert not (stage.job.workspace / "ran").exists()


@needs("root", "landlock")
@pytest.mark.parametrize("stage", [("landlock", False)], ids=["root"], indirect=True)
def test_a_killed_runners_children_are_gone_for_certain(stage: Stage) -> None:
    """What hides from every search, in a session and environment of its own, is in the cgroup."""
    hide = "env -i setsid sh -c 'sleep 300 & sleep 300' &\n: > up\nsleep 300\n"
    with stage.start(hide, scorer=JUDGE) as runner:
        until((stage.job.workspace / "up").exists)
        runner.kill()
        runner.communicate()
    cells = [find_cell(f"{identity.marker}-agent") for identity in identities(stage)]
    if not any(cells):
        pytest.skip("machine lacks: a version 2 cgroup that can be written")
    assert stage.run(HONEST, scorer=JUDGE).stdout == "accept\n"
    assert not any(cell.exists() for cell in cells if cell)
    assert stage.job.of("attempt_aborted")["proof"] == "cgroup"


def identities(stage: Stage) -> list[AttemptIdentity]:
    """Read what each attempt was frozen to."""
    found = []
    for path in stage.job.attempts:
        with open_directory(path) as directory:
            found.append(read_identity(directory, path.name))
    return found
