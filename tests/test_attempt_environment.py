"""What agent and scorer are given: an environment, a HOME, streams, a session - and no more."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.jobs import AGENT, ROOT_COMMAND, SCORER, Job, clean_environment, make_job
from tests.machine import needs
from tests.someone import PLAIN, ROOT, as_plain, common_ground, plain_python

if TYPE_CHECKING:
    from collections.abc import Iterator

# Writes what a child was given beside the workspace, by the child's name.
DUMP: Final = """\
import json, os, stat, sys
given = {
    "environ": dict(os.environ),
    "cwd": os.getcwd(),
    "argv": sys.argv[1:],
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "stdin": os.fstat(0).st_rdev == os.stat("/dev/null").st_rdev,
    "leader": os.getsid(0) == os.getpid(),
    "home": oct(os.stat(os.environ["HOME"]).st_mode & 0o7777),
    "files": sorted(os.listdir(os.environ["HOME"])),
    "tmp": os.listdir(os.environ["TMPDIR"]),
    "umask": os.umask(0o022),
}
try:
    os.open("/dev/tty", os.O_RDWR)
    given["terminal"] = True
except OSError:
    given["terminal"] = False
with open(DIRECTORY + "/" + sys.argv[1] + ".json", "w") as file:
    json.dump(given, file)
"""
COMMON: Final = {"PATH", "HOME", "TMPDIR", "LANG", "TZ", "TERM", "ATTEMPT_RUNNER_MARK"}
TOLD_AGENT: Final = {"MODEL_ID", "PROMPT_FILE"}
TOLD_SCORER: Final = {
    *("MODEL_ID", "WORKSPACE_GEN", "ATTEMPT_ID", "PROMPT_FILE", "DIFF_FILE"),
    *("DIFF_SHA256", "PROMPT_SHA256", "SCORE_FILE", "SCORE_NONCE"),
}
PASSED: Final = {"LANG": "C.UTF-8", "TZ": "UTC", "TERM": "vt100"}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, dict[str, dict[str, Any]]]:
    """Run one job whose agent and scorer tell what they were given, from a terminal."""
    job = make_job(tmp_path_factory.mktemp("given"))
    text = DUMP.replace("DIRECTORY", repr(str(job.directory)))
    home = job.directory / "operators-home"
    (home / "inner").mkdir(parents=True)
    (home / "inner" / "config").write_text("x")
    (home / "link").symlink_to("/etc/passwd")
    flags = [
        *("--agent", job.agent(text + AGENT, "agent", "{workspace}")),
        *("--agent-pass-env", "FOR_AGENT", "--agent-pass-env", "NOT_SET"),
        *("--scorer-pass-env", "FOR_SCORER", "--scorer-home-from", str(home)),
        *("--path-add", "/opt/tools"),
    ]
    words = job.run_words(*flags, scorer=job.scorer("scorer", "{diff}", text=text + PASSING))
    environ = {**PASSED, "FOR_AGENT": "a", "FOR_SCORER": "s", "SECRET": "x", "HOME": "/root"}
    done = run_from_a_terminal(job, words, environ | {"PATH": "/usr/bin:/bin"})
    assert done == (0, "accept\n")
    found = {
        name: json.loads((job.directory / f"{name}.json").read_bytes())
        for name in ("agent", "scorer")
    }
    return job, found


PASSING: Final = SCORER.replace("sys.argv[1]", '"pass"')
ON_TERMINAL: Final = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def run_from_a_terminal(job: Job, words: list[str], environ: dict[str, str]) -> tuple[int, str]:
    """Run a command as somebody at a terminal would, and return its status and output."""
    ours, theirs = os.openpty()
    name, *arguments = words
    command = [*ROOT_COMMAND, name, *job.arguments(), *arguments]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", ON_TERMINAL, *command],
            check=False,
            cwd=job.directory,
            env=clean_environment() | environ,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            timeout=100,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout


Given = tuple[Job, dict[str, dict[str, Any]]]


def test_the_environment_is_an_allow_list(given: Given) -> None:
    """Nothing is inherited but language, time zone and terminal type, and what a flag names."""
    _, found = given
    assert set(found["agent"]["environ"]) - {"LC_CTYPE"} == COMMON | TOLD_AGENT | {"FOR_AGENT"}
    assert set(found["scorer"]["environ"]) - {"LC_CTYPE"} == COMMON | TOLD_SCORER | {"FOR_SCORER"}
    for name, value in PASSED.items():
        assert found["agent"]["environ"][name] == found["scorer"]["environ"][name] == value


def test_the_path_is_fixed_and_not_the_callers(given: Given) -> None:
    """The operator's additions stand before a fixed list; the caller's PATH is not asked."""
    _, found = given
    fixed = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    for role in ("agent", "scorer"):
        assert found[role]["environ"]["PATH"] == f"/opt/tools:{fixed}"


def test_home_and_tmp_are_fresh_private_and_gone_afterwards(given: Given) -> None:
    """Each child has its own, 0700, empty but for what the operator had copied there."""
    job, found = given
    homes = {found[role]["environ"]["HOME"] for role in ("agent", "scorer")}
    assert len(homes) == 2
    assert not any(map(os.path.exists, homes))
    assert found["agent"]["home"] == found["scorer"]["home"] == "0o700"
    assert found["agent"]["files"] == []
    assert found["scorer"]["files"] == ["inner", "link"]
    assert found["agent"]["tmp"] == found["scorer"]["tmp"] == []
    assert all(home.startswith(str(job.directory / "scratch")) for home in homes)


def test_a_child_has_null_for_input_and_no_descriptor_of_ours(given: Given) -> None:
    """No lock, log or directory of the runner's is passed on, and nothing can be typed in."""
    _, found = given
    for role in ("agent", "scorer"):
        assert found[role]["descriptors"] == [0, 1, 2]
        assert found[role]["stdin"]


def test_a_child_has_its_own_session_and_no_terminal(given: Given) -> None:
    """TIOCSTI needs a controlling terminal: the runner has one here, its children none."""
    _, found = given
    for role in ("agent", "scorer"):
        assert found[role]["leader"]
        assert not found[role]["terminal"]


def test_the_agent_is_told_neither_generation_nor_attempt(given: Given) -> None:
    """The agent works in the workspace; only the scorer, in its own room, learns the ids."""
    job, found = given
    agent, scorer = found["agent"], found["scorer"]
    assert agent["cwd"] == str(job.workspace)
    assert agent["argv"] == ["agent", str(job.workspace)]
    assert agent["environ"]["MODEL_ID"] == scorer["environ"]["MODEL_ID"] == "model-a"
    told = json.dumps([agent["environ"], agent["argv"]])
    assert job.last not in told
    assert job.of("generation_minted")["generation"] not in told
    assert scorer["environ"]["ATTEMPT_ID"] == job.last


def test_the_scorer_gets_no_path_into_workspace_or_state(given: Given) -> None:
    """Its directory, inputs and score lie in its exchange room, away from both."""
    job, found = given
    told = json.dumps(found["scorer"])
    assert str(job.workspace) not in told
    assert str(job.state_root) not in told
    assert found["scorer"]["argv"] == ["scorer", found["scorer"]["environ"]["DIFF_FILE"]]


PLANTED: Final = "import pathlib; pathlib.Path({mark!r}).touch()\n"


def test_nothing_of_the_callers_environment_runs_code_in_a_child(job: Job) -> None:
    """Variables, a user site with a `.pth`, a `json.py` where we stand: none of it is run."""
    mark = job.directory / "code-was-run"
    planted = PLANTED.format(mark=str(mark))
    home = job.directory / "home"
    site = home / f".local/lib/python3.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    (site / "planted.pth").write_text(planted)
    for name in ("json.py", "usercustomize.py", "sitecustomize.py", "typer.py"):
        (job.workspace / name).write_text(planted)
    (job.workspace / "attempt_runner").mkdir()
    (job.workspace / "attempt_runner" / "__init__.py").write_text(planted)
    shell = job.script("planted.sh", f"touch {mark}\n")
    hooks = job.script("gitconfig", f"[core]\n\tfsmonitor = touch {mark}\n")
    environ = {
        "HOME": str(home),
        "PYTHONPATH": str(job.workspace),
        "PYTHONSTARTUP": str(job.workspace / "json.py"),
        "PYTHONUSERBASE": str(home / ".local"),
        "BASH_ENV": str(shell),
        "ENV": str(shell),
        "NODE_OPTIONS": f"--require {shell}",
        "PERL5OPT": "-Mplanted",
        "RUBYOPT": f"-r{shell}",
        "GIT_CONFIG_GLOBAL": str(hooks),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"touch {mark}",
        "GIT_DIR": str(job.workspace),
    }
    # Not isolated: what keeps the scorer clean is its environment and its directory.
    program = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    scorer = ["/bin/bash", "-c", f"cd . && {program} {job.scorer()[2]} pass"]
    name, *arguments = job.run_words("--base", str(job.base), scorer=scorer)
    done = subprocess.run(
        [*ROOT_COMMAND, name, *job.arguments(), *arguments],
        capture_output=True,
        check=False,
        cwd=job.workspace,
        env=clean_environment() | environ,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr
    assert not mark.exists()


def test_a_variable_that_runs_code_cannot_be_passed_on(job: Job) -> None:
    """By either flag it is a refused configuration, before anything is locked or wiped."""
    for flag in ("--agent-pass-env", "--scorer-pass-env"):
        done = job.run(flag, "LD_PRELOAD")
        assert (done.returncode, done.stdout) == (78, "")
        assert "load code" in done.stderr
    assert not job.state_root.exists()


def plain_words(*words: str) -> list[str]:
    """Return what a plain user starts to run our command, whosever the tests' interpreter is."""
    paths = [str(ROOT), *site.getsitepackages()]
    add = f"import site; [site.addsitedir(path) for path in {paths!r}]"
    launch = f"{add}; from attempt_runner.__main__ import main; main()"
    return [*as_plain(), plain_python() or sys.executable, "-I", "-c", launch, *words]


@pytest.fixture
def plain_job() -> Iterator[Job]:
    """Lay out a job that a plain user owns, in a directory that it may reach."""
    if subprocess.run(plain_words("--version"), check=False, capture_output=True).returncode != 0:
        pytest.skip("machine lacks: an interpreter and a checkout that a plain user may read")
    with common_ground(PLAIN) as directory:
        job = make_job(directory)
        yield job


def run_as_plain(job: Job, *words: str) -> tuple[int, str, str]:
    """Run a command on a job as its plain owner; return status, output and complaints."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{PLAIN}:{PLAIN}", job.directory], check=True)
    name, *arguments = words
    done = subprocess.run(
        plain_words(name, *job.arguments(), *arguments),
        capture_output=True,
        check=False,
        cwd=job.directory,
        env=clean_environment(),
        text=True,
        timeout=100,
    )
    return done.returncode, done.stdout, done.stderr


SHELL_SCORE: Final = """printf '{"verdict":"pass","reasons":["because"]}' > "$SCORE_FILE" """


@needs("linux")
def test_the_runners_memory_and_environment_are_closed_to_its_own_user(plain_job: Job) -> None:
    """An agent of the same uid cannot read what the runner was given: it is not dumpable."""
    agent = "/bin/sh -c 'for f in environ mem maps; do cat /proc/$PPID/$f && exit 3; done; exit 0'"
    words = plain_job.run_words("--agent", agent, scorer=["/bin/sh", "-c", SHELL_SCORE])
    code, out, err = run_as_plain(plain_job, *words)
    assert (code, out) == (1, "reject: diff_file\n"), err  # it read nothing, and left no diff


@needs("linux")
def test_a_plain_user_runs_a_whole_attempt(plain_job: Job) -> None:
    """Nothing of an attempt needs root: wiped read-only trees, sealed copies, a score."""
    job = plain_job
    scores = job.workspace / "scores"
    (scores / "deep").mkdir(parents=True)
    (scores / "deep" / "score").write_text("stale")
    (scores / "deep").chmod(0o555)
    scores.chmod(0o555)
    words = job.run_words("--score-path", "scores", scorer=["/bin/sh", "-c", SHELL_SCORE])
    assert run_as_plain(job, *words)[:2] == (0, "accept\n")
    assert not scores.exists()


@needs("linux")
def test_a_score_that_may_not_be_read_is_none(plain_job: Job) -> None:
    """Mode 0000 keeps a plain user's runner out, and no score is no receipt."""
    scorer = ["/bin/sh", "-c", SHELL_SCORE + '&& chmod 0 "$SCORE_FILE"']
    code, out, _ = run_as_plain(plain_job, *plain_job.run_words(scorer=scorer))
    assert (code, out) == (1, "reject: missing_receipt\n")
