"""Score the patched tree: its own tests, run by pytest in a sandbox of their own.

The patch runs in that sandbox alone, without the score directory, and all that comes back is
its output and its status. It could still lie to the pytest that it shares a process with.
"""

import json
import os
import re
import subprocess
import sys

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
CONFINED = (sys.executable, "-I", "-m", "attempt_runner", "confined", "--")

done = subprocess.run([*CONFINED, *PYTEST], stdout=subprocess.PIPE, check=False, text=True)
print(done.stdout)
if done.returncode not in (0, 1):  # pytest's own: all passed, some failed
    sys.exit(f"the tests could not be run: status {done.returncode}")

lines = done.stdout.strip().splitlines()
passed = done.returncode == 0 and re.fullmatch(r"\d+ passed in [\d.]+s", lines[-1])
score = {
    "verdict": "pass" if passed else "fail",
    "reasons": [lines[-1]],
    "nonce": os.environ["SCORE_NONCE"],
}
with open(os.environ["SCORE_FILE"], "w", encoding="utf-8") as file:
    json.dump(score, file)
