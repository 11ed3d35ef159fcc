"""One workspace after real runs of every outcome: what a report or a table has to show."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Final

from tests.jobs import BLOCKER, DIFF, SCORER, Job, make_job, until

if TYPE_CHECKING:
    from pathlib import Path

UNAVAILABLE: Final = "import sys\nsys.exit(75)\n"
# Model A's provider is away; model B's answers.
FIRST_UNAVAILABLE: Final = """\
import json, os, sys
if os.environ["MODEL_ID"] == "model-a":
    sys.exit(75)
score = {"verdict": "pass", "reasons": ["because"], "model_id": os.environ["MODEL_ID"]}
with open(os.environ["SCORE_FILE"], "w") as file:
    json.dump(score, file)
"""
# What a hostile agent's text could try against a reader of the report.
NASTY: Final = (
    """</script><script>alert(1)</script>\x1b[2K\raccept\u202e\u2028<img src=x onerror=alert(1)>"""
)


def run_every_outcome(directory: Path) -> Job:
    """Run one job after the other in one workspace; the last one is killed and stays open."""
    job = make_job(directory)
    accepted = job.run()
    assert accepted.stdout == "accept\n"
    job.command("gate", job.last, "--consume")
    assert job.run().stdout == "accept\n"
    _reject(job, "verdict", scorer=job.scorer("fail"))
    _reject(job, "missing_receipt", scorer=job.scorer(text="pass"))
    _reject(job, "agent", "--agent", job.agent("import sys; sys.exit(3)"))
    job.diff.write_text(DIFF)  # wiped, since an agent was to leave it
    _reject(job, "diff_sha256", scorer=job.scorer("pass", text=_spoil(job)))
    job.diff.write_text(DIFF)
    served = f'{{"verdict": "pass", "reasons": ["x"], "model_id": {NASTY!r}}}'
    text = f"import json, os\njson.dump({served}, open(os.environ['SCORE_FILE'], 'w'))\n"
    _reject(job, "served_model", scorer=job.scorer(text=text))
    away = job.run("--scorer-may-be-unavailable", scorer=job.scorer(text=UNAVAILABLE))
    assert away.returncode == 75
    several = job.run("--model", "model-b", scorer=job.scorer(text=FIRST_UNAVAILABLE))
    assert several.stdout == "accept\n", several.stderr
    _leave_open(job)
    return job


def _reject(job: Job, name: str, *flags: str, scorer: list[str] | None = None) -> None:
    done = job.run(*flags, scorer=scorer)
    assert done.stdout == f"reject: {name}\n", done


def _spoil(job: Job) -> str:
    return f"{SCORER}\nopen({str(job.diff)!r}, 'a').write('more')\n"


def _leave_open(job: Job) -> None:
    """Kill a runner while its scorer runs."""
    marker = job.directory / "runs"
    words = job.run_words(scorer=job.scorer(str(marker), text=BLOCKER))
    runner = job.start(*words)
    until(marker.exists)
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    frozen = json.loads((job.attempts[-1] / "attempt.json").read_text())
    os.kill(frozen["processes"]["scorer"][0], signal.SIGKILL)  # nobody else stops it
