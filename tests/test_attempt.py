"""One attempt through the real command, `run`: what is left of it, and each way to a reject."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from tests.jobs import AGENT, DIFF, SCORER, until
from tests.machine import needs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Job

EVENTS: Final = [
    "generation_minted",
    "score_paths_wiped",
    "model_frozen",
    "attempt_started",
    "agent_exited",
    "processes_cleared",
    "score_paths_wiped",
    "inputs_sealed",
    "scorer_exited",
    "processes_cleared",
    "receipt_written",
    "accepted",
]
SERVED: Final = 'import json, os\nopen(os.environ["SCORE_FILE"], "w").write(json.dumps({}))\n'


def served(**fields: object) -> str:
    """Return a scorer's text that passes with more fields in its score."""
    return SERVED.format({"verdict": "pass", "reasons": ["because"], **fields})


def test_an_accepted_attempt_leaves_all_its_evidence(job: Job) -> None:
    """Accept is one line, twelve records, a private directory, and a receipt bound to all."""
    done = job.run("--agent", job.agent(), "--base", str(job.base), "--score-path", "score.json")
    assert (done.returncode, done.stdout) == (0, "accept\n")
    assert job.events == EVENTS
    (attempt,) = job.attempts
    assert attempt.name == job.last
    assert attempt.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in attempt.iterdir()}
    sealed = dict.fromkeys(("prompt", "patch.diff", "score", "receipt.json"), 0o444)
    own = dict.fromkeys(("attempt.json", "agent.log", "scorer.log", "decision.json"), 0o600)
    assert modes == sealed | own
    receipt = json.loads((attempt / "receipt.json").read_bytes())
    assert receipt["diff_sha256"] == sha256(DIFF.encode()).hexdigest()
    assert receipt["prompt_sha256"] == sha256(job.prompt.read_bytes()).hexdigest()
    assert receipt["model_id"] == "model-a"
    assert receipt["attempt_id"] == attempt.name
    assert receipt["workspace_generation"] == job.of("generation_minted")["generation"]
    assert receipt["reasons"] == ["because"]
    assert receipt["evidence"]["scored"] == "tree"
    assert job.decision()["decision"] == "accept"
    assert not list((job.directory / "scratch").iterdir())


def test_an_attempt_without_an_agent_logs_none(job: Job) -> None:
    """The diff that lies there is scored, and no event tells of work that was not done."""
    assert job.run().stdout == "accept\n"
    assert job.events == [event for event in EVENTS if event != "agent_exited"][:4] + EVENTS[6:]
    assert job.of("attempt_started")["scored"] == "diff"


@pytest.mark.parametrize(
    ("text", "code", "signal"),
    [
        (AGENT + "raise SystemExit(1)\n", 1, None),
        (AGENT + "raise SystemExit(75)\n", 75, None),
        (AGENT + "import os\nos.kill(os.getpid(), 9)\n", None, 9),
    ],
    ids=["failure", "unavailable", "signal"],
)
def test_a_failing_agent_is_rejected_unsealed(
    job: Job, text: str, code: int | None, signal: int | None
) -> None:
    """A code, 75 included, and a signal are recorded apart; nothing is sealed or scored."""
    done = job.run("--agent", job.agent(text), "--scorer-may-be-unavailable")
    assert (done.returncode, done.stdout) == (1, "reject: agent\n")
    exited = job.of("agent_exited")
    assert (exited["code"], exited["signal"]) == (code, signal)
    assert "inputs_sealed" not in job.events
    assert not (job.attempts[0] / "patch.diff").exists()


def test_other_exit_codes_of_the_agent_count_where_named(job: Job) -> None:
    """An operator whose agent exits 3 when it is done says so."""
    agent = job.agent(AGENT + "raise SystemExit(3)\n")
    assert job.run("--agent", agent, "--agent-exit-codes", "0,3").stdout == "accept\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", "diff_file"),
        ("import os\nos.symlink('../base/app.py', 'change.diff')\n", "diff_file"),
        ("import os\nos.mkfifo('change.diff')\n", "diff_file"),
        ("open('change.diff', 'w')\n", "diff_file"),
        ("open('change.diff', 'w').write('no diff')\n", "missing_receipt"),
        (AGENT + "open('../prompt.md', 'a').write('!')\n", "prompt_sha256"),
        (AGENT + "open('../scorer.py', 'a').write('#')\n", "scorer"),
        (
            AGENT + "import os, shutil\nos.rename('../workspace', '../moved')\n"
            "shutil.copytree('../moved', '../workspace')\n",
            "inputs_changed",
        ),
    ],
    ids=[
        "no diff",
        "link",
        "fifo",
        "empty",
        "no patch",
        "prompt edited",
        "scorer edited",
        "workspace replaced",
    ],
)
def test_what_an_agent_leaves_is_named_in_the_reject(job: Job, text: str, fields: str) -> None:
    """Yesterday's diff is wiped, so an agent that leaves none, or anything else, is rejected."""
    done = job.run("--agent", job.agent(text), "--base", str(job.base))
    assert (done.returncode, done.stdout) == (1, f"reject: {fields}\n")
    assert job.events[-1] == "rejected"
    assert job.of("rejected")["fields"] == fields.split(",")
    assert [item["field"] for item in job.decision()["findings"]] == fields.split(",")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (SCORER + "open('{workspace}/change.diff', 'a').write('#')\n", "diff_sha256"),
        (
            SCORER + "import pathlib\n"
            "sealed, = pathlib.Path('{state}').glob('*/attempts/*/patch.diff')\n"
            "sealed.chmod(0o600)\nsealed.write_text('another')\n",
            "diff_sha256,inputs_changed",
        ),
        (
            SCORER + "import pathlib\n"
            "found, = pathlib.Path('{state}').glob('*/attempts/*/attempt.json')\n"
            "found.write_text(found.read_text().replace('model-a', 'model-b'))\n",
            "model_id,job_log",
        ),
        (
            SCORER + "import pathlib\n"
            "found, = pathlib.Path('{state}').glob('*/generation.json')\n"
            "found.unlink()\n",
            "attempt_state",
        ),
    ],
    ids=["diff edited", "sealed copy", "frozen model", "generation"],
)
def test_a_scorer_that_changes_what_it_scores_is_rejected(job: Job, text: str, fields: str) -> None:
    """Without isolation the scorer can write anywhere: what it changed is compared and named."""
    for word, path in (("{workspace}", job.workspace), ("{state}", job.state_root)):
        text = text.replace(word, str(path))
    done = job.run(scorer=job.scorer(text=text))
    assert (done.returncode, done.stdout) == (1, f"reject: {fields}\n")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (served(model_id="model-b"), "served_model"),
        (served(nonce="0" * 32), "missing_receipt"),
        (served(attempt_id="att-of-another"), "missing_receipt"),
        (served(verdict=True), "missing_receipt"),
        (served(reasons=["  "]), "missing_receipt"),
        (served() + "raise SystemExit(7)\n", "missing_receipt"),
        (served() + "os.kill(os.getpid(), 9)\n", "missing_receipt"),
        (served(verdict="fail"), "verdict"),
        ("raise SystemExit(75)\n", "missing_receipt"),
    ],
    ids=[
        "another model",
        "wrong nonce",
        "wrong attempt",
        "verdict true",
        "blank reason",
        "pass with exit 7",
        "pass with signal",
        "fail",
        "75 undeclared",
    ],
)
def test_a_score_is_a_receipt_only_if_all_of_it_agrees(job: Job, text: str, fields: str) -> None:
    """Another model is `served_model`, a fail a `verdict`, and whatever is no score no receipt."""
    done = job.run(scorer=job.scorer(text=text))
    assert (done.returncode, done.stdout) == (1, f"reject: {fields}\n")
    assert ("receipt_written" in job.events) is (fields == "verdict")


def test_a_score_that_names_the_frozen_model_passes(job: Job) -> None:
    """The model served, the nonce and the attempt id may be named, and then must match."""
    text = SERVED.replace(
        "{}",
        '{"verdict": "pass", "reasons": ["because"], "model_id": os.environ["MODEL_ID"], '
        '"nonce": os.environ["SCORE_NONCE"], "attempt_id": os.environ["ATTEMPT_ID"]}',
    )
    assert job.run(scorer=job.scorer(text=text)).stdout == "accept\n"


def test_a_declared_unavailable_scorer_is_no_reject(job: Job) -> None:
    """Exit 75 without a score, declared: 75, nothing printed, the attempt closed as aborted."""
    scorer = job.scorer(text="raise SystemExit(75)\n")
    done = job.run("--scorer-may-be-unavailable", scorer=scorer)
    assert (done.returncode, done.stdout) == (75, "")
    assert job.events[-1] == "attempt_aborted"
    assert job.judged(job.last).startswith("reject: ")


def test_a_declared_unavailable_scorer_cannot_take_back_a_score(job: Job) -> None:
    """Exit 75 beside a score, or after a signal, is no score, declared or not."""
    for text in (served() + "raise SystemExit(75)\n", "import os\nos.kill(os.getpid(), 15)\n"):
        done = job.run("--scorer-may-be-unavailable", scorer=job.scorer(text=text))
        assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")
    text = "import sys\nopen(sys.argv[1] + '/a', 'w').close()\nraise SystemExit(75)\n"
    words = ("--scorer-may-be-unavailable", "--score-file", "a/b")
    done = job.run(*words, scorer=job.scorer("{score}", text=text))
    assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")


@needs("git")
def test_a_baseline_of_an_earlier_generation_does_not_count(job: Job) -> None:
    """Bootstrapped without --capture, a workspace has none: yesterday's is gone."""
    model = ("--model", "model-a")
    assert job.command("bootstrap", *model, "--capture").returncode == 0
    assert job.command("bootstrap", *model).returncode == 0
    words = ("--prompt", str(job.prompt), "--isolation", "none", "--capture")
    assert job.command("attempt", *words, "--", *job.scorer()).returncode == 78


def test_the_time_limits_are_rejects(job: Job) -> None:
    """An agent over its limit is `agent`; a scorer over its own leaves no score that counts."""
    slow = job.agent(AGENT + "import time\ntime.sleep(600)\n")
    assert job.run("--agent", slow, "--agent-timeout", "0.3").stdout == "reject: agent\n"
    assert job.log[-1]["fields"] == ["agent"]
    text = served() + "import time\ntime.sleep(600)\n"
    done = job.run("--scorer-timeout", "0.5", scorer=job.scorer(text=text))
    assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")
    assert "the time limit" in done.stderr


MALFORMED: Final = {
    "nothing": "pass",
    "fifo": "os.mkfifo(path)",
    "directory": "os.mkdir(path)",
    "link to passwd": "os.symlink('/etc/passwd', path)",
    "link to zero": "os.symlink('/dev/zero', path)",
    "link to a pass": "open('aside', 'w').write(PASS); os.symlink('aside', path)",
    "hard link to a pass": "open('aside', 'w').write(PASS); os.link('aside', path)",
    "socket": "import socket; socket.socket(socket.AF_UNIX).bind(path)",
    "duplicate key": """open(path, 'w').write('{"verdict": "fail", ' + PASS[1:])""",
    "deep": "open(path, 'w').write('[' * 100_000)",
    "long integer": """open(path, 'w').write('{"verdict": ' + '1' * 5000 + '}')""",
    "lone surrogate": r"""open(path, 'w').write(PASS.replace('because', '\\ud800'))""",
    "a gigabyte": "open(path, 'w').truncate(1 << 30)",
    "a gigabyte of reasons": "open(path, 'w').write(PASS[:-2] + ' ' * (100 << 20) + PASS[-2:])",
}
MALFORM: Final = """\
import os, sys
PASS = '{"verdict": "pass", "reasons": ["because"]}'
path = os.environ["SCORE_FILE"]
exec(sys.argv[-1])
"""


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_score_file_rejects_in_bounded_time(job: Job, kind: str) -> None:
    """Of whatever kind the score is, it is opened without waiting, read capped, and refused."""
    done = job.run(scorer=job.scorer(MALFORMED[kind], text=MALFORM))
    assert (done.returncode, done.stdout) == (1, "reject: missing_receipt\n")
    assert done.stderr.count("\n") == 2  # the note on isolation, and the cause
    assert "Traceback" not in done.stderr
    assert job.events[-2:] == ["processes_cleared", "rejected"]


def test_reasons_beyond_a_receipts_limits_are_cut_and_noted(job: Job) -> None:
    """A thousand reasons of four thousand characters are kept, and the receipt says so."""
    reasons = "reasons=['x' * 5000] * 1500"
    text = f"import json, os\nscore = dict(verdict='pass', {reasons})\n"
    text += "json.dump(score, open(os.environ['SCORE_FILE'], 'w'))\n"
    assert job.run(scorer=job.scorer(text=text)).stdout == "accept\n"
    kept = json.loads((job.attempts[0] / "receipt.json").read_bytes())["reasons"]
    assert len(kept) <= 1000
    assert max(map(len, kept)) <= 4096
    assert "cut" in kept[-1] or "more" in kept[-1]


def test_the_tree_is_the_base_with_the_sealed_diff_and_no_git(job: Job) -> None:
    """The scorer works in a copy of the trusted base: nothing of the workspace is in it."""
    (job.base / ".git").mkdir()
    (job.workspace / "sitecustomize.py").write_text("raise SystemExit(9)\n")
    text = (
        "import json, os, sys\n"
        "assert os.getcwd() == os.environ['TREE_DIR'] == sys.argv[1]\n"
        "assert sorted(os.listdir('.')) == ['app.py'], os.listdir('.')\n"
        "assert open('app.py').read() == 'x = 2\\n'\n"
    )
    scorer = job.scorer("{tree}", text=text + served())
    assert job.run("--base", str(job.base), scorer=scorer).stdout == "accept\n"
    assert (job.base / "app.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("flags", "scorer", "what"),
    [
        ([], "{tree}", "{tree} in the scorer"),
        (["--base", "nowhere"], "pass", "base"),
        (["--scratch-dir", "nowhere"], "pass", "scratch directory"),
        (["--score-path", "change.diff"], "pass", "score path change.diff"),
        (["--prompt", "nowhere"], "pass", "prompt"),
        (["--agent-home-from", "nowhere", "--agent", "/bin/true"], "pass", "home directory"),
    ],
)
def test_a_refused_configuration_prints_nothing_and_starts_nothing(
    job: Job, flags: list[str], scorer: str, what: str
) -> None:
    """What contradicts itself, or names what is not there, is 78 before any child starts."""
    done = job.run(*flags, scorer=[*job.scorer(), scorer])
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines()[-1].startswith(f"attempt-runner: {what}")
    if job.has_log:
        assert not {"agent_exited", "scorer_exited", "rejected"} & set(job.events)
        assert "attempt_started" not in job.events or job.events[-1] == "attempt_aborted"


def test_a_program_that_cannot_be_started_closes_its_attempt(job: Job) -> None:
    """A missing interpreter is found only at the start: 78, and no attempt is left open."""
    script = job.script("agent", "#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = job.run("--agent", str(script))
    assert (done.returncode, done.stdout) == (78, "")
    assert job.events[-2:] == ["attempt_started", "attempt_aborted"]


def test_the_scorer_reads_the_live_workspace_only_where_allowed(job: Job) -> None:
    """With leave {workspace} names it, and the evidence says what was scored."""
    text = "import sys\nassert open(sys.argv[1] + '/app.py').read() == 'x = 1\\n'\n" + served()
    scorer = job.scorer("{workspace}", text=text)
    assert job.run("--scorer-reads-workspace", scorer=scorer).stdout == "accept\n"
    assert job.of("attempt_started")["scored"] == "workspace"
    assert job.gate(job.last, "--require", "scored=tree") == "reject: isolation"
    assert job.gate(job.last, "--require", "scored=workspace") == "accept"


def test_words_are_replaced_once_and_other_braces_stay(job: Job) -> None:
    """A value is never looked at again, and no shell sees an argument."""
    text = "import sys\nassert sys.argv[1:] == {!r}, sys.argv\n".format(
        ["model-a", "x{nonsense}y", "{}", "$HOME; `id`", "a b"]
    )
    words = ["{model}", "x{nonsense}y", "{}", "$HOME; `id`", "a b"]
    assert job.run(scorer=job.scorer(*words, text=text + served())).stdout == "accept\n"


def test_the_model_is_frozen_from_flag_or_environment(job: Job) -> None:
    """`--model` wins over $MODEL_ID; without either, or with an empty one, it is bad usage."""
    words = [word for word in job.run_words() if word not in ("--model", "model-a")]
    done = job.command(*words, environ={"MODEL_ID": "model-e"})
    assert done.stdout == "accept\n"
    assert job.of("model_frozen")["model_id"] == "model-e"
    assert job.run(environ={"MODEL_ID": "model-e", "WORKSPACE_GEN": "gen-old"}).returncode == 0
    assert job.log[-1]["model_id"] == "model-a"
    for environ in ({}, {"MODEL_ID": ""}, {"MODEL_ID": "a b"}, {"MODEL_ID": "-m"}):
        done = job.command(*words, environ=environ)
        assert (done.returncode, done.stdout) == (2, "")


def test_junit_scores_a_real_file(job: Job) -> None:
    """A JUnit file in the score directory is read by its flag, and its path is no variable."""
    text = (
        "import os, sys\nassert 'SCORE_FILE' not in os.environ\n"
        "open(sys.argv[1] + '/junit.xml', 'w').write('<testsuite tests=\"1\" failures=\"0\" '"
        '\'errors="0"><testcase name="t"/></testsuite>\')\n'
    )
    flags = ("--score-format", "junit", "--score-file", "junit.xml")
    done = job.run(*flags, scorer=job.scorer("{score}", text=text))
    assert (done.returncode, done.stdout) == (0, "accept\n"), done.stderr


def test_a_full_machine_never_sells_another_try(job: Job) -> None:
    """An agent that takes the runner's room to start the scorer gets 77 or a reject, never 75."""
    limit = (
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (%d, 99))\n"
    )
    done = job.run("--agent", job.agent(AGENT + limit % 13))
    assert (done.returncode, done.stdout) in ((1, "reject: processes\n"), (77, ""))


@pytest.mark.parametrize(
    ("victims", "status"), [("scratch/*", 77), ("state/*/attempts/*", 77), ("state", 77)]
)
def test_an_agent_that_removes_what_is_ours_is_never_accepted(
    job: Job, victims: str, status: int
) -> None:
    """Without isolation an agent can remove all that is ours: the machine is held."""
    text = AGENT + f"import glob, shutil\nfor path in glob.glob('../{victims}'):\n"
    done = job.run("--agent", job.agent(text + "    shutil.rmtree(path)\n"))
    assert (done.returncode, done.stdout) == (status, "")


def test_an_agent_that_kills_the_runner_and_cleans_up_is_never_accepted(job: Job) -> None:
    """It kills $PPID, then removes lock and attempt directory: no closing record, no accept."""
    text = AGENT + (
        "import glob, os, shutil\nos.kill(os.getppid(), 9)\n"
        "[os.unlink(path) for path in glob.glob('../state/*/workspace.lock')]\n"
        "[shutil.rmtree(path) for path in glob.glob('../state/*/attempts/*')]\n"
        "open('../done', 'w')\n"
    )
    done = job.run("--agent", job.agent(text))
    assert (done.returncode, done.stdout) == (-9, "")
    until((job.directory / "done").exists)
    assert job.gate(job.last) == "reject: missing_receipt"


def test_python_is_run_by_path_and_needs_no_shell(job: Job, tmp_path: Path) -> None:
    """A program without a slash is looked up in the fixed PATH and in --path-add alone."""
    tools = tmp_path / "tools"
    tools.mkdir()
    os.symlink(sys.executable, tools / "our-python")
    scorer = ["our-python", "-I", *job.scorer()[2:]]
    assert job.run(scorer=scorer, environ={"PATH": f"{tools}:/usr/bin:/bin"}).returncode == 78
    assert job.run("--path-add", str(tools), scorer=scorer).stdout == "accept\n"
