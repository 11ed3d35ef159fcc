"""Rows of the benchmark: whole commands, measured in turn with a floor and a peer.

Each round runs ours, the floor and the peer one after the other, so that a machine whose
speed drifts slows all three. A ratio is the median of the rounds' ratios. Nothing is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
PYTHON = sys.executable
MEGABYTE = 1 << 20
DIFF = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
NATIVE = '#!/bin/sh\nprintf \'{"verdict":"pass","reasons":["ok"]}\' > "$SCORE_FILE"\n'

Step = Callable[[], None]


@dataclass
class Command:
    """What to time: an argv, and what is done before each run without being timed."""

    argv: list[str]
    before: Step = lambda: None
    cwd: Path | None = None


@dataclass
class Row:
    """One row: ours beside the floor and the peer. `reach` is the aim, for the reader alone."""

    name: str
    ours: Command
    floor: Command | None = None
    peer: Command | None = None
    peer_name: str = ""
    reach: str = ""
    rounds: int = 7


@dataclass
class Figures:
    """What runs of one command cost: seconds of wall and CPU, peak kilobytes."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: int = 0


def run(command: Command) -> tuple[float, float, int]:
    """Run a command once and return its wall seconds, CPU seconds and peak kilobytes."""
    command.before()
    begin = time.perf_counter()
    process = subprocess.Popen(
        command.argv,
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, errors = process.communicate()
    wall = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{command.argv}: status {process.returncode}: {errors.decode()}")
    return wall, *usage()


_spent = [0.0]


def usage() -> tuple[float, int]:
    """Return the CPU seconds of the children since the last call, and the largest peak so far."""
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = now.ru_utime + now.ru_stime
    spent, _spent[0] = total - _spent[0], total
    return spent, now.ru_maxrss


def measure(row: Row, rounds: int) -> dict[str, object]:
    """Run a row's commands in turn, once to warm up and then `rounds` times."""
    commands = {"ours": row.ours, "floor": row.floor, "peer": row.peer}
    figures = {name: Figures() for name, command in commands.items() if command}
    for number in range(rounds + 1):
        for name, command in commands.items():
            if command is None:
                continue
            wall, cpu, peak = run_alone(command)
            if number:
                figures[name].wall.append(wall)
                figures[name].cpu.append(cpu)
                figures[name].peak = max(figures[name].peak, peak)
    return summary(row, figures)


def run_alone(command: Command) -> tuple[float, float, int]:
    """Run a command in a fork of its own, so that its peak memory is its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            _spent[0] = 0.0
            os.write(writer, json.dumps(run(command)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        raise SystemExit(f"{command.argv}: could not be measured")
    wall, cpu, peak = json.loads(told)
    return wall, cpu, peak


def summary(row: Row, figures: dict[str, Figures]) -> dict[str, object]:
    """Return what the table shows of a row."""
    ours = figures["ours"]

    def ratio(other: str) -> float | None:
        if other not in figures:
            return None
        pairs = zip(ours.wall, figures[other].wall, strict=True)
        return round(statistics.median(mine / theirs for mine, theirs in pairs), 2)

    ordered = sorted(ours.wall)
    return {
        "name": row.name,
        "median_ms": round(statistics.median(ours.wall) * 1000, 1),
        "p95_ms": round(ordered[max(0, round(len(ordered) * 0.95) - 1)] * 1000, 1),
        "to_floor": ratio("floor"),
        "to_peer": ratio("peer"),
        "peer": row.peer_name if "peer" in figures else "",
        "cpu_ms": round(statistics.median(ours.cpu) * 1000, 1),
        "peak_mb": round(ours.peak / 1024, 1),
        "reach": row.reach,
    }


class Bench:
    """The rows, and the directory in which they work."""

    def __init__(self, directory: Path, peers: Path) -> None:
        self.directory = directory
        self.peers = peers
        self.floor = Command([PYTHON, "-c", "pass"])

    def place(self, name: str) -> Path:
        """Make a fresh directory for a row."""
        path = self.directory / name
        path.mkdir()
        return path

    def rows(self) -> dict[str, Callable[[], Row | None]]:
        """Return how to prepare each row, by name."""
        return {
            "binder-verify": self.binder_verify,
            "binder-1g": self.binder_1g,
            "run": lambda: self.run_row("none"),
            "run-landlock": lambda: self.run_row("landlock"),
            "run-bwrap": self.run_bwrap,
            "batch-job": self.batch_job,
            "gate-1e6": lambda: self.reader_row("gate"),
            "show-1e6": lambda: self.reader_row("show"),
            "append-1e6": self.append,
            "log-verify-1e6": self.log_verify,
            "wipe-100k": lambda: self.wipe("wide"),
            "wipe-50k-deep": lambda: self.wipe("deep"),
            "seal-1g": self.seal,
            "output-1g": self.output,
            "workspaces-64": self.workspaces,
            "lock-16": self.lock,
            "capture-20k": self.capture,
            "entrypoint": self.entrypoint,
            "report-10k": self.report,
            "collect-1e6": self.collect,
        }

    # Receipts

    def receipt(self, place: Path, size: int = 0) -> list[str]:
        """Plant inputs and a receipt; return the flags that verify it."""
        diff, prompt, out = place / "diff", place / "prompt", place / "receipt.json"
        diff.write_text(DIFF)
        with diff.open("r+b") as file:
            if size:
                block = os.urandom(MEGABYTE)
                for _ in range(size // MEGABYTE):
                    file.write(block)
        prompt.write_text("p\n")
        (place / "reasons").write_text('["ok"]')
        flags = ["--diff", str(diff), "--prompt", str(prompt), "--model", "m"]
        flags += ["--workspace-gen", "g"]
        more = ["--verdict", "pass", "--reasons-file", str(place / "reasons"), "--out", str(out)]
        subprocess.run([BIN / "bind-receipt", "write", *flags, *more], check=True)
        return [*flags, "--receipt", str(out)]

    def binder_verify(self) -> Row:
        flags = self.receipt(self.place("binder"))
        ours = Command([str(BIN / "bind-receipt"), "verify", *flags])
        return Row("binder-verify", ours, self.floor, reach="<= 3 floor", rounds=15)

    def binder_1g(self) -> Row:
        place = self.place("binder-1g")
        flags = self.receipt(place, 1 << 30)
        ours = Command([str(BIN / "bind-receipt"), "verify", *flags])
        peer = Command(["openssl", "dgst", "-sha256", str(place / "diff")])
        return Row("binder-1g", ours, None, peer, "openssl dgst", "<= 1.05 peer, 24 MB", 5)

    # Attempts

    def job(self, place: Path) -> list[str]:
        """Lay out a job; return its flags without isolation and scorer."""
        workspace = place / "workspace"
        workspace.mkdir()
        (workspace / "app.py").write_text("x = 1\n")
        with (workspace / "change.diff").open("w") as diff:
            diff.write(DIFF)
            diff.write("# padding\n" * (MEGABYTE // 10))
        (place / "prompt").write_text("p\n")
        scorer = place / "scorer"
        scorer.write_text(NATIVE)
        scorer.chmod(0o755)
        return [
            *("--workspace", str(workspace), "--state-dir", str(place / "state")),
            *("--scratch-dir", str(place), "--prompt", str(place / "prompt")),
            *("--diff", str(workspace / "change.diff"), "--model", "m"),
        ]

    def run_row(self, tier: str, *more: str) -> Row:
        place = self.place(f"run-{tier}")
        flags = [*self.job(place), "--isolation", tier, *more]
        ours = Command([str(BIN / "attempt-runner"), "run", *flags, "--", str(place / "scorer")])
        name = "run" if tier == "none" else f"run-{tier}"
        peer = self.in_toto(place) if tier == "none" else self.none_beside(tier)
        peer_name = "in-toto-run" if tier == "none" else "run, isolation none"
        return Row(name, ours, self.floor, peer, peer_name, "<= 10 floor, 0.8 in-toto-run", 15)

    def none_beside(self, tier: str) -> Command:
        place = self.place(f"beside-{tier}")
        flags = [*self.job(place), "--isolation", "none", "--", str(place / "scorer")]
        return Command([str(BIN / "attempt-runner"), "run", *flags])

    def run_bwrap(self) -> Row | None:
        if shutil.which("bwrap") is None:
            return None
        user = ("--scorer-user", "64999") if os.geteuid() == 0 else ()
        if user:
            self.directory.chmod(0o755)
        return self.run_row("bwrap", *user)

    def in_toto(self, place: Path) -> Command | None:
        program = self.peers / "in-toto/bin/in-toto-run"
        if not program.exists():
            return None
        key = place / "key.pem"
        genpkey = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)]
        subprocess.run(genpkey, check=True)
        flags = ["-n", "score", "--signing-key", str(key), "-m", "workspace/change.diff"]
        return Command([str(program), *flags, "-p", "prompt", "--", "true"], cwd=place)

    def batch_job(self) -> Row | None:
        place = self.place("batch")
        jobs = place / "jobs.jsonl"
        count = 20
        lines = []
        for number in range(count):
            inner = place / str(number)
            inner.mkdir()
            flags = self.job(inner)
            keys = [flag.removeprefix("--") for flag in flags[::2]]
            job = dict(zip(keys, flags[1::2], strict=True)) | {
                "isolation": "none",
                "scorer": [str(inner / "scorer")],
            }
            lines.append(json.dumps(job))
        jobs.write_text("\n".join(lines) + "\n")
        ours = Command([str(BIN / "attempt-runner"), "run", "--job-list", str(jobs)])
        return Row(
            "batch-job", ours, self.floor, reach=f"{count} jobs: <= 0.5 floor each", rounds=5
        )

    # Logs

    def long_state(self, place: Path, records: int) -> list[str]:
        """Make an accepted attempt at the end of a log of so many records."""
        flags = self.job(place)
        program = [str(BIN / "attempt-runner")]
        scorer = ["--isolation", "none", "--", str(place / "scorer")]
        subprocess.run([*program, "run", *flags, *scorer], check=True, capture_output=True)
        (state,) = (place / "state").iterdir()
        script = (
            "import sys\nfrom pathlib import Path\n"
            "from bootstrap.chain import HEAD_NAME, LOG_NAME, Head, encode_head, encode_record\n"
            "from hashlib import sha256\nimport json\nstate = Path(sys.argv[1])\n"
            "lines = (state / LOG_NAME).read_bytes().splitlines()\n"
            "head = Head(len(lines), sha256(lines[-1]).hexdigest())\n"
            "with open(state / LOG_NAME, 'ab', 1 << 20) as log:\n"
            "    for left in reversed(range(int(sys.argv[2]))):\n"
            "        event = 'pruned' if left else 'generation_minted'\n"
            "        line = encode_record(head, '2026-01-01T00:00:00.000000Z', event,"
            " {'generation': 'none'})\n"
            "        log.write(line + (b'' if line.endswith(b'\\n') else b'\\n'))\n"
            "        head = Head(head.seq + 1, sha256(line.rstrip(b'\\n')).hexdigest())\n"
            "(state / HEAD_NAME).write_bytes(encode_head(head))\n"
        )
        subprocess.run([PYTHON, "-c", script, str(state), str(records)], check=True)
        done = subprocess.run([*program, "run", *flags, *scorer], check=True, capture_output=True)
        attempt = next(w for w in done.stderr.decode().split() if w.startswith("att-"))
        return [attempt, *flags[:4]]

    def reader_row(self, command: str) -> Row:
        sides = []
        for records in (1_000_000, 10):
            place = self.place(f"{command}-{records}")
            words = self.long_state(place, records)
            sides.append(Command([str(BIN / "attempt-runner"), command, *words]))
        return Row(f"{command}-1e6", sides[0], self.floor, sides[1], "log of 10", "<= 1.1 peer", 9)

    def append(self) -> Row:
        script = (
            "import sys\nfrom pathlib import Path\nfrom bootstrap.files import open_directory\n"
            "from bootstrap.joblog import JobLog\n"
            "log = JobLog(open_directory(Path(sys.argv[1])))\n"
            "for _ in range(50):\n    log.append('pruned', attempt_id='none')\n"
        )
        sides = []
        for records in (1_000_000, 10):
            place = self.place(f"append-{records}")
            self.long_state(place, records)
            (state,) = (place / "state").iterdir()
            sides.append(Command([PYTHON, "-c", script, str(state)]))
        return Row("append-1e6", sides[0], None, sides[1], "log of 10", "<= 1.1 peer", 9)

    def log_verify(self) -> Row:
        place = self.place("log-verify")
        words = self.long_state(place, 1_000_000)
        (state,) = (place / "state").iterdir()
        loop = (
            "import hashlib, json, sys\n"
            "for line in open(sys.argv[1], 'rb'):\n"
            "    json.loads(line); hashlib.sha256(line).hexdigest()\n"
        )
        ours = Command([str(BIN / "attempt-runner"), "log", "--verify", *words[1:]])
        peer = Command([PYTHON, "-c", loop, str(state / "job-log.jsonl")])
        return Row("log-verify-1e6", ours, None, peer, "json + sha256 loop", "<= 1.3 peer", 3)

    # Trees and bytes

    def wipe(self, shape: str) -> Row:
        place = self.place(f"wipe-{shape}")
        files = 100_000 if shape == "wide" else 50_000

        def plant(top: Path) -> Step:
            return lambda: plant_tree(top, shape, files)

        script = (
            "import sys\nfrom pathlib import Path\nfrom bootstrap.files import open_directory\n"
            "from bootstrap.scorepath import check_score_path\n"
            "from bootstrap.wipe import wipe\n"
            "wipe(open_directory(Path(sys.argv[1])), [check_score_path('top')])\n"
        )
        for name in ("ours", "theirs"):
            (place / name).mkdir()
        ours = Command([PYTHON, "-c", script, str(place / "ours")], plant(place / "ours/top"))
        rm = Command(["rm", "-rf", str(place / "theirs/top")], plant(place / "theirs/top"))
        name = "wipe-100k" if shape == "wide" else "wipe-50k-deep"
        reach = "<= 1.25 peer" if shape == "wide" else "<= 2 peer"
        return Row(name, ours, None, rm, "rm -rf", reach, 3)

    def seal(self) -> Row:
        place = self.place("seal")
        source, sealed = place / "source", place / "sealed"
        self.receipt(place, 1 << 30)
        (place / "diff").rename(source)
        script = (
            "import os, sys\nfrom pathlib import Path\nfrom bootstrap.files import open_directory\n"
            "from bootstrap.seal import seal\nplace = Path(sys.argv[1])\n"
            "seal(os.open(place / 'source', os.O_RDONLY), open_directory(place), 'sealed')\n"
        )

        def remove() -> None:
            sealed.unlink(missing_ok=True)

        both = f"cp {source} {sealed} && sync {sealed} && openssl dgst -sha256 {sealed}"
        ours = Command([PYTHON, "-c", script, str(place)], remove)
        peer = Command(["sh", "-c", both], remove)
        return Row("seal-1g", ours, None, peer, "cp + sync + openssl", "<= 1.15 peer", 3)

    def output(self) -> Row:
        place = self.place("output")
        script = (
            "import os, sys\nfrom pathlib import Path\n"
            "from bootstrap.processes import Child, Limits, run_child\n"
            "from bootstrap.signals import SignalInbox\ninbox = SignalInbox()\ninbox.install()\n"
            "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n"
            "child = Child(('/bin/sh', '-c', sys.argv[2]), Path('/'), dict(os.environ), log)\n"
            "run_child(child, Limits(600, 1, 16 << 20), inbox, lambda process: None)\n"
        )
        noisy = "head -c 1073741824 /dev/zero"
        ours = Command([PYTHON, "-c", script, str(place / "log"), noisy])
        peer = Command(["sh", "-c", f"{noisy} > {place / 'file'}"])
        return Row("output-1g", ours, None, peer, "cmd > file", "<= 1.1 peer, 24 MB", 3)

    def workspaces(self) -> Row:
        place = self.place("workspaces")
        script = ["set -e"]
        single = ""
        for number in range(64):
            inner = place / str(number)
            inner.mkdir()
            flags = " ".join(self.job(inner))
            single = f"{BIN}/attempt-runner run {flags} --isolation none -- {inner}/scorer"
            script.append(f'{single} & pids="$pids $!"')
        script.append('for pid in $pids; do wait "$pid"; done')
        ours = Command(["sh", "-c", "\n".join(script)])
        one_by_one = "set -e\n" + "\n".join([single] * 64)
        cores = os.cpu_count() or 1
        peer = Command(["sh", "-c", one_by_one])
        reach = f">= 0.9 of {cores} cores: <= {1 / cores / 0.9:.2f} peer"
        return Row("workspaces-64", ours, None, peer, "64 in turn", reach, 1)

    def lock(self) -> Row:
        place = self.place("lock")
        script = (
            "import subprocess, sys\nworker = '''import os, sys, time\n"
            "from pathlib import Path\nfrom bootstrap.files import open_directory\n"
            "from bootstrap.lock import hold_lock\n"
            "with hold_lock(open_directory(Path(sys.argv[1])), 60):\\n    time.sleep(0.01)\\n'''\n"
            "running = [subprocess.Popen([sys.executable, '-c', worker, sys.argv[1]])"
            " for _ in range(16)]\n"
            "sys.exit(max(one.wait() for one in running))\n"
        )
        ours = Command([PYTHON, "-c", script, str(place)])
        sleep = f"{PYTHON} -c 'import time; time.sleep(.01)'"
        flock = f"for i in $(seq 16); do flock {place}/peer {sleep} & done; wait"
        return Row(
            "lock-16",
            ours,
            None,
            Command(["sh", "-c", flock]),
            "flock(1), 16 waiters",
            "p95 of a hand-over < 30 ms",
            5,
        )

    def capture(self) -> Row:
        place = self.place("capture")
        workspace = place / "workspace"
        workspace.mkdir()
        plant_tree(workspace / "top", "wide", 20_000)
        (workspace / "app.py").write_text("x = 1\n")
        (place / "prompt").write_text("p\n")
        scorer = place / "scorer"
        scorer.write_text(NATIVE)
        scorer.chmod(0o755)
        agent = place / "agent"
        agent.write_text("#!/bin/sh\necho x = 2 > app.py\n")
        agent.chmod(0o755)
        flags = [
            *("--workspace", str(workspace), "--state-dir", str(place / "state")),
            *("--scratch-dir", str(place), "--prompt", str(place / "prompt"), "--model", "m"),
            *("--capture", "--isolation", "none", "--agent", str(agent)),
        ]

        def reset() -> None:
            (workspace / "app.py").write_text("x = 1\n")

        ours = Command([str(BIN / "attempt-runner"), "run", *flags, "--", str(scorer)], reset)
        git = place / "git"
        add = (
            f"rm -rf {git}; git init -q --bare {git}; for i in 1 2 3; do rm -f {git}/index; "
            f"git --git-dir={git} --work-tree={workspace} add -A; "
            f"git --git-dir={git} write-tree; done"
        )
        reach = "a whole run reads the tree four times: baseline, capture, tree, second manifest"
        return Row(
            "capture-20k", ours, None, Command(["sh", "-c", add]), "git add, three times", reach, 3
        )

    def entrypoint(self) -> Row | None:
        if os.geteuid() or shutil.which("unshare") is None:
            return None
        place = self.place("entrypoint")
        flags = self.job(place)[:4]
        pid1 = ["unshare", "--pid", "--fork", "--mount-proc"]
        ours = Command(
            [*pid1, str(BIN / "attempt-runner"), "bootstrap", *flags, "--model", "m", "--", "true"]
        )
        tini = shutil.which("tini")
        peer = Command([*pid1, tini, "--", "true"]) if tini else None
        return Row("entrypoint", ours, self.floor, peer, "tini", "<= 7 floor, 25 MB", 9)

    def report(self) -> Row | None:
        return None

    def collect(self) -> Row | None:
        return None


def plant_tree(top: Path, shape: str, files: int) -> None:
    """Make a wide tree of small files, or a chain of nested directories."""
    shutil.rmtree(top, ignore_errors=True)
    if shape == "wide":
        for number in range(files):
            directory = top / str(number % 100)
            if number < 100:
                directory.mkdir(parents=True)
            (directory / str(number)).write_bytes(b"x")
        return
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(files):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def environment() -> str:
    """Name what the figures were made on."""
    python, system = platform.python_version(), f"{platform.system()} {platform.release()}"
    return f"Python {python}, {system}, {os.cpu_count()} cores"


def main() -> None:
    """Measure the rows that were asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="a row's name; repeatable")
    parser.add_argument("--rounds", type=int, help="rounds of each row")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", type=Path, required=True)
    asked = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as directory:
        bench = Bench(Path(directory), asked.peers)
        for name, prepare in bench.rows().items():
            if asked.only and name not in asked.only:
                continue
            print(f"{name} ...", file=sys.stderr, flush=True)
            row = prepare()
            if row is None:
                print(f"{name}: skipped, this machine lacks a part", file=sys.stderr)
                continue
            found.append(measure(row, asked.rounds or row.rounds))
            if not asked.json:
                print(line(found[-1]), flush=True)
    if asked.json:
        print(json.dumps({"environment": environment(), "rows": found}, indent=2))
    else:
        print(environment())


def line(row: dict[str, object]) -> str:
    """Return one row for people."""
    return (
        f"{row['name']:16} {row['median_ms']:>9} ms  p95 {row['p95_ms']:>9}  "
        f"floor x {row['to_floor'] or '-':<6} peer x {row['to_peer'] or '-':<6} "
        f"{row['peer']:24} cpu {row['cpu_ms']:>9}  {row['peak_mb']:>6} MB  {row['reach']}"
    )


if __name__ == "__main__":
    main()
