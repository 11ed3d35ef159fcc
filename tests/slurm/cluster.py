"""Start and stop a Slurm of one node, and ask it what became of its jobs."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.jobs import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SITE: Final = Path(__file__).parents[2] / "examples/slurm/site.conf"
# No munge, no cgroups, no systemd; a requeue waits for cred_expire, of which 5 is the least.
CONFIG: Final = """\
ClusterName=attempts
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=0,max_rpc_cnt=0
MinJobAge=300
KillWait=20
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
Include {site}
"""
CPUS: Final = 8  # more than there are: most of a short job is waiting


@dataclass(slots=True)
class Cluster:
    """A running Slurm. Its daemons are children of the test's process, and die with it."""

    place: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of Slurm's commands."""
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.place / "slurm.conf")}

    def ask(self, *words: str, check: bool = True) -> str:
        """Return what a command of Slurm's prints."""
        done = subprocess.run(
            words, capture_output=True, check=check, env=self.environ, text=True, timeout=60
        )
        return done.stdout

    def start(self, name: str) -> None:
        """Start a daemon in the foreground, to be stopped when this process ends."""
        config = self.environ["SLURM_CONF"]
        with (self.place / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", name, "-D", "-f", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environ,
            )

    def kill(self, name: str) -> None:
        """Kill a daemon, as a node that fails."""
        self.daemons[name].kill()
        self.daemons[name].wait(30)

    def await_idle(self) -> None:
        """Wait until the node takes jobs."""
        until(lambda: self.ask("sinfo", "-h", "-o", "%t", check=False).strip() in ("idle", "mix"))

    def submit(self, script: Path, *flags: str, **exported: str) -> str:
        """Submit a batch script with variables of its own; return the job's id."""
        names = ",".join(f"{name}={value}" for name, value in exported.items())
        where = ("--output", f"{self.place}/%A_%a.out", "--export", f"PATH,{names}")
        return self.ask("sbatch", "--parsable", *where, *flags, str(script)).strip()

    def tasks(self, job: str) -> dict[int, dict[str, str]]:
        """Return what the controller says of each task of an array, by index."""
        lines = self.ask("scontrol", "-o", "show", "job", job).splitlines()
        found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
        return {int(one["ArrayTaskId"]): one for one in found if one["ArrayTaskId"].isdigit()}

    def await_tasks(self, job: str, ended: Callable[[dict[int, dict[str, str]]], bool]) -> None:
        """Wait until the tasks of an array are as expected."""
        deadline = time.monotonic() + 300
        while not ended(self.tasks(job)):
            assert time.monotonic() < deadline, self.tasks(job)
            time.sleep(0.5)


@contextmanager
def running(place: Path) -> Iterator[Cluster]:
    """Start a Slurm below a directory, and stop all of it."""
    place.mkdir()
    place.chmod(0o755)
    for name in ("state", "spool"):
        (place / name).mkdir()
    (place / "cgroup.conf").write_text("# none\n")
    (place / "slurm.conf").write_text(_config(place))
    cluster = Cluster(place)
    try:
        for name in ("slurmctld", "slurmd"):
            cluster.start(name)
        cluster.await_idle()
        yield cluster
    finally:
        _stop(cluster)


def _config(place: Path) -> str:
    controller, daemon = _free_ports()
    host = socket.gethostname().split(".")[0]
    return CONFIG.format(
        host=host, controller=controller, daemon=daemon, place=place, cpus=CPUS, site=SITE
    )


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _stop(cluster: Cluster) -> None:
    cluster.ask("scancel", "--user", "root", check=False)
    until(lambda: not cluster.ask("squeue", "-h", "-t", "running,completing", check=False))
    for daemon in reversed(cluster.daemons.values()):
        daemon.terminate()
        daemon.wait(60)
