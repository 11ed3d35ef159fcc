"""Write the state directory that today's version leaves: one attempt accepted, one rejected.

    python -m tests.write_version

It goes to `tests/golden/versions/VERSION`, once for each release, and is never written again:
`test_versions.py` shows that every later version can still read it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bootstrap import __version__
from tests.jobs import AGENT, SCORER, Job, make_job

VERSIONS: Final = Path(__file__).with_name("golden") / "versions"


def write_state(job: Job) -> None:
    """Run two attempts, each in a generation of its own: a pass, and a fail."""
    python = shutil.which("python3", path=os.defpath) or sys.executable
    script = str(job.script("scorer.py", SCORER))
    flags = ("--base", str(job.base), "--score-path", "receipt.json", "--isolation", "landlock")
    for verdict, line in (("pass", "accept\n"), ("fail", "reject: verdict\n")):
        agent = f"{python} -I {job.script('agent.py', AGENT)}"
        scorer = [python, "-I", script, verdict]
        done = job.run(*flags, "--agent", agent, scorer=scorer)
        if done.stdout != line:
            sys.exit(f"expected {line!r}, got {done.stdout!r}: {done.stderr}")


def main() -> None:
    """Write the version's directory, or refuse where it lies already."""
    with tempfile.TemporaryDirectory(prefix="attempt-runner-golden-") as directory:
        job = make_job(Path(directory))
        write_state(job)
        shutil.copytree(job.state, VERSIONS / __version__)


if __name__ == "__main__":
    main()
