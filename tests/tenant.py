"""Hold a user in a process of its own, do as told, and print what happened as JSON.

    python tenant.py LOCKS UID SCENARIO

SCENARIO: `leave` starts processes and makes leftovers as the user, then lets go; `crash` does
the same and is killed; `hold` prints `held` and waits for its standard input to end; `take`
only takes the user and lets go.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attempt_runner.leftovers import find_leftovers, processes_of
from attempt_runner.users import hold_user, resolve_user
from bootstrap.errors import RunnerError
from bootstrap.reaper import guard_runner

MESS = """
mkdir /tmp/mess-$1; touch /tmp/mess-$1/f /var/tmp/mess-$1 /dev/shm/mess-$1
ipcmk -M 16; ipcmk -S 1; ipcmk -Q
setsid sleep 60 & env -i setsid sh -c 'sleep 60 & sleep 60' & trap '' TERM; sleep 60 &
"""


def make_a_mess(uid: int) -> None:
    """Start daemons and make leftovers as a user."""
    user = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--")
    null = subprocess.DEVNULL
    argv = (*user, "sh", "-c", MESS, "sh", str(uid))
    subprocess.run(argv, check=True, stdout=null, stderr=null, stdin=null)
    while len(processes_of(uid)) < 4:
        time.sleep(0.01)


def main(locks: Path, uid: int, scenario: str) -> dict[str, object]:
    """Play one scenario; return what was inherited and what is left."""
    guard_runner()
    with hold_user([resolve_user(str(uid))], locks=locks) as tenancy:
        if scenario == "hold":
            sys.stdout.write("held\n")
            sys.stdout.flush()
            sys.stdin.read()
        if scenario in {"leave", "crash"}:
            make_a_mess(uid)
        if scenario == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
    left = [*processes_of(uid), *map(str, find_leftovers(uid))]
    return {"inherited": tenancy.inherited, "left": left}


if __name__ == "__main__":
    try:
        found = main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    except RunnerError as error:
        found = {"error": str(error), "status": error.status}
    sys.stdout.write(json.dumps(found))
