"""Choose an isolation, in a process of its own, and print it as one JSON object.

    python chooser.py REQUESTED BASE [--user UID] [--no-network] [--require P] [--allow SOCKET]
        [--listen NAME] [--unwritable]

BASE is an empty directory. Printed are the fields of the isolation, or `error` and `status`;
and what lies in BASE's directories afterwards.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attempt_runner.isolate import Room, User
from attempt_runner.probe import choose
from attempt_runner.tryout import Ground
from bootstrap.errors import RunnerError
from bootstrap.reaper import guard_runner


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("requested")
    parser.add_argument("base", type=Path)
    parser.add_argument("--user", type=int)
    parser.add_argument("--no-network", action="store_true")
    parser.add_argument("--require", action="append", default=[])
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--listen")
    parser.add_argument("--unwritable", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Choose, and print what was chosen."""
    args = parse()
    guard_runner()
    user = User(args.user, args.user) if args.user else None
    names = ("workspace", "state", "scratch")
    for name in names:
        (args.base / name).mkdir(0o711 if name == "scratch" else 0o700)
    if user and not args.unwritable:
        os.chown(args.base / "workspace", *user)
    if args.unwritable:
        (args.base / "workspace").chmod(0o500)
    room = Room(
        writable=(args.base / "workspace",),
        hidden=(args.base / "state",),
        network=not args.no_network,
        user=user,
    )
    ground = Ground(
        state_root=args.base / "state",
        scratch=args.base / "scratch",
        sockets=tuple({args.listen} - {None, *args.allow}),
    )
    with ExitStack() as stack:
        if args.listen:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(args.listen.replace("@", "\0", 1))
            server.listen()
            if not args.listen.startswith("@"):
                os.chmod(args.listen, 0o777)  # noqa: S103 - as docker's may be
        try:
            found = dataclasses.asdict(
                choose(args.requested, room, ground, frozenset(args.require))
            )
        except RunnerError as error:
            found = {"error": str(error), "status": error.status}
    found["remains"] = [path.name for name in names for path in (args.base / name).iterdir()]
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
