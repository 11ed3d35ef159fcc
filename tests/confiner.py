"""Play a scorer that runs a command confined, in a tier of its own.

    python confiner.py TIER BASE FLAGS COMMAND ARG...

TIER is where the scorer itself runs. BASE is an empty directory. FLAGS are letters: `n` the
network is on, `w` the tree may be written, `s` all of BASE, `t` the time limit is half a second,
`-` none.
Standard output is the command's; the exit status is the confined command's, or an error's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attempt_runner.confined import Confinement, run_confined
from attempt_runner.isolate import Room, enclose
from attempt_runner.probe import examine
from attempt_runner.status import status_pipe
from attempt_runner.tryout import Ground
from bootstrap.errors import RunnerError
from bootstrap.reaper import guard_runner
from bootstrap.signals import SignalInbox

HERE = Path(__file__).resolve()


def outer(tier: str, base: Path, words: list[str]) -> int:
    """Start this script again in the scorer's tier, with a scorer's environment."""
    for name in ("state", "score", "home", "tmp", "tree"):
        (base / name).mkdir(mode=0o700)
    (base / "score" / "score").write_text("nonce", encoding="ascii")
    (base / "home" / "key").write_text("key", encoding="ascii")
    (base / "tree" / "code").write_text("code\n", encoding="ascii")
    room = Room(
        writable=tuple(base / name for name in ("score", "home", "tmp", "tree")),
        readable=(HERE.parent,),
        hidden=(base / "state",),
    )
    found = examine(tier, room, Ground(state_root=base / "state", scratch=base, sockets=()))
    assert found.isolation is not None, found.why
    environment = {
        "PATH": os.defpath,
        "HOME": str(base / "home"),
        "TMPDIR": str(base / "tmp"),
        "SCORE_FILE": str(base / "score" / "score"),
        "SCORE_NONCE": "nonce",
        "API_KEY": "key",
        "LANG": "C.UTF-8",
    }
    argv = (sys.executable, "-S", str(HERE), "inner", *words)
    with status_pipe() as status:
        launch = enclose(found.isolation, room, argv, status.ends)
        done = subprocess.run(
            launch.argv, cwd=base / "tree", env=environment, pass_fds=launch.pass_fds, check=False
        )
    return done.returncode


def inner(flags: str, argv: list[str]) -> int:
    """Be the scorer."""
    guard_runner()
    inbox = SignalInbox()
    inbox.install()
    here = Path(os.path.realpath("."))
    writable = {"w": (here,), "s": (here.parent,)}
    asked = Confinement(
        argv=tuple(argv),
        cwd=here,
        writable=writable.get(flags, ()),
        network="n" in flags,
        timeout=0.5 if "t" in flags else 60.0,
    )
    try:
        return run_confined(asked, dict(os.environ), inbox)
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return error.status


if __name__ == "__main__":
    guard_runner()
    if sys.argv[1] == "inner":
        sys.exit(inner(sys.argv[2], sys.argv[3:]))
    sys.exit(outer(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
