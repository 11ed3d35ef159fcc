"""Run hostile agents in one tier, each beneath a runner process of its own; print what happened.

Started by path, as root or as a plain user, since what it does must never happen in the test
process: it adopts orphans, kills descendants, and may be killed by an agent.

    python tests/enclosure.py TIER BASE [--user UID] AGENT...

BASE is an empty directory that the user owns and others may pass through. Standard output is
one JSON object: agent to `worked` (exit 0, and any trace it had to leave is there), `said`
(the last line of its output), `killed` (the runner died), `left` (processes that outlived it).
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attempt_runner.isolate import Isolation, Room, User, enclose
from attempt_runner.probe import examine
from attempt_runner.status import status_pipe
from attempt_runner.tryout import Ground
from bootstrap.cells import own_cgroup
from bootstrap.processes import MARKER_VARIABLE, Child, Limits, run_child
from bootstrap.proctable import all_processes
from bootstrap.reaper import clear_descendants, guard_runner
from bootstrap.signals import SignalInbox

ROOT = Path(__file__).resolve().parent.parent
FILES = ("receipt.json", "job-log.jsonl", "generation.json")


@dataclass(frozen=True)
class Scene:
    """One agent's surroundings, fresh for each."""

    base: Path
    marker: str

    def at(self, name: str) -> Path:
        """Return the path of one of its directories or files."""
        return self.base / name


def lay_out(base: Path, user: User | None) -> Scene:
    """Make workspace, state, HOME, an operator's home and a place for sockets."""
    scene = Scene(base, secrets.token_hex(16))
    modes = {"workspace": 0o755, "state": 0o700, "home": 0o700, "operator": 0o755, "run": 0o700}
    for name, mode in modes.items():
        scene.at(name).mkdir(mode=mode, parents=True)
    for name in FILES:
        (scene.at("state") / name).write_text("{}\n", encoding="ascii")
    (scene.at("operator") / "site-packages").mkdir()
    if user is not None:
        for name in ("workspace", "home"):
            os.chown(scene.at(name), *user)
    return scene


def start_helper(scene: Scene) -> int:
    """Serve, from outside, whoever asks: write the log for them and answer `k`."""
    servers = []
    for address in (str(scene.at("run") / "tmux-0"), "\0" + scene.marker):
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen()
        servers.append(server)
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(60)
            serve(scene, servers)
        finally:
            os._exit(1)
    for server in servers:
        server.close()
    return pid


def serve(scene: Scene, servers: list[socket.socket]) -> None:
    """Answer for ever."""
    while True:
        for server in select.select(servers, [], [])[0]:
            client, _ = server.accept()
            with (scene.at("state") / "job-log.jsonl").open("a", encoding="ascii") as log:
                log.write("helped\n")
            client.sendall(b"k")
            client.close()


def room_of(scene: Scene, agent: Path, user: User | None) -> Room:
    """Give an agent its workspace and HOME."""
    return Room(
        writable=(scene.at("workspace"), scene.at("home")),
        readable=(agent,),
        hidden=(scene.at("state"),),
        user=user,
    )


def probe_once(tier: str, base: Path, user: User | None) -> Isolation:
    """Probe the tier in surroundings like those of the agents."""
    scene = lay_out(base / "probe", user)
    ground = Ground(state_root=scene.at("state"), scratch=scene.base, sockets=())
    examined = examine(tier, room_of(scene, ROOT, user), ground)
    if examined.isolation is None:
        sys.exit(f"{tier}: {examined.why}")
    return examined.isolation


def run_agent(
    isolation: Isolation, agent: Path, scene: Scene, user: User | None
) -> dict[str, object]:
    """Be the runner of one agent, and tell how it went."""
    guard_runner()
    inbox = SignalInbox()
    inbox.install()
    terminal, shown = os.openpty()
    os.fchmod(shown, 0o620)  # as login(1) leaves a terminal
    log = os.open(scene.at("state") / "job-log.jsonl", os.O_RDWR)
    os.set_inheritable(log, True)  # noqa: FBT003 - a runner that forgot
    room = room_of(scene, agent, user)
    argv = (
        isolation.python,
        "-I",
        "-S",
        str(agent),
        str(scene.at("workspace")),
        str(scene.at("state")),
    )
    env = {
        "PATH": os.defpath,
        "HOME": str(scene.at("home")),
        MARKER_VARIABLE: scene.marker,
        "HELPER": str(scene.at("run") / "tmux-0"),
        "ABSTRACT_HELPER": scene.marker,
        "OPERATOR_HOME": str(scene.at("operator")),
        "SHARED_MEMORY": f"/dev/shm/{scene.marker}",  # noqa: S108 - the attack
        "SIBLING_CGROUP": str((own_cgroup() or Path("/nowhere")) / scene.marker),
        "TERMINAL": os.ttyname(shown),
    }
    output = os.open(scene.at("output"), os.O_RDWR | os.O_CREAT, 0o600)
    with status_pipe() as status:
        launch = enclose(isolation, room, (*argv, str(os.getpid())), status.ends)
        child = Child(launch.argv, scene.at("workspace"), env, output, launch.pass_fds)
        exited = run_child(child, Limits(30, 1, 1 << 20), inbox, lambda _process: None)
        start = status.outcome(launch, exited.code)
    clear_descendants(time.monotonic() + 30)
    os.set_blocking(terminal, False)
    said = os.pread(output, 1 << 20, 0).decode("utf-8", "replace").strip().rpartition("\n")[2]
    return {
        "worked": exited.code == 0,
        "said": said,
        "start": start.proof,
        "killed": False,
    }


def try_agent(isolation: Isolation, name: str, base: Path, user: User | None) -> dict[str, object]:
    """Fork a runner for one agent; it may not survive."""
    scene = lay_out(base / name, user)
    sibling = make_sibling(scene)
    helper = start_helper(scene)
    reader, writer = os.pipe()
    runner = os.fork()
    if runner == 0:
        os.close(reader)
        try:
            result = run_agent(isolation, ROOT / "tests/hostile" / f"{name}.py", scene, user)
            os.write(writer, json.dumps(result).encode())
        except BaseException:  # noqa: BLE001 - must not run on as the parent
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(runner, 0)
    os.kill(helper, signal.SIGKILL)
    os.waitpid(helper, 0)
    result = json.loads(data) if data else {"worked": False, "said": "", "start": "unknown"}
    result["killed"] = os.WIFSIGNALED(status)
    result["left"] = kill_marked(scene.marker)
    result["shared"] = Path(f"/dev/shm/{scene.marker}").exists()  # noqa: S108 - looked for
    Path(f"/dev/shm/{scene.marker}").unlink(missing_ok=True)  # noqa: S108 - as above
    state = {file.name: file.read_text(encoding="ascii") for file in scene.at("state").iterdir()}
    result["state_changed"] = state != dict.fromkeys(FILES, "{}\n")
    if sibling:
        sibling.rmdir()
    return result


def make_sibling(scene: Scene) -> Path | None:
    """Make a cgroup beside the runner's, where that may be done."""
    try:
        sibling = (own_cgroup() or Path("/nowhere")) / scene.marker
        sibling.mkdir()
    except OSError:
        return None
    return sibling


def kill_marked(marker: str) -> int:
    """Kill what of an agent is still alive, and count it; the helpers carry no mark."""
    count = 0
    for process in all_processes():
        try:
            environment = Path(f"/proc/{process.id.pid}/environ").read_bytes()
        except OSError:
            continue
        if marker.encode() in environment and process.alive:
            os.kill(process.id.pid, signal.SIGKILL)
            count += 1
    return count


def main(args: list[str]) -> int:
    """Run every agent named, and print the results."""
    tier, base, *rest = args
    user = None
    if rest[0] == "--user":
        user, rest = User(int(rest[1]), int(rest[1])), rest[2:]
    isolation = probe_once(tier, Path(base), user)
    results = {name: try_agent(isolation, name, Path(base), user) for name in rest}
    sys.stdout.write(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
