"""Try, from inside a tier, everything the tier promises to stop. Harmless where it succeeds.

Started by path like `inside.py`, standard library alone, by the probe and nobody else:

    python -I -S canary.py STATE HOME PID START TCP_PORT UDP_PORT MARK SOCKET... -- PLACE...

In: a private directory with one file for each attack on it; a directory that may be written;
the runner by pid and start time; two ports on which the runner listens, 0 for none; a random
mark for what is left behind; control sockets, an abstract one with `@` before its name; and
the places that the command must be able to write.
Out: one line `PROMISE<tab>ATTACK` for each attack that worked, sockets by number; one line
`unusable<tab>NUMBER` for each place that cannot be written; then `done`.

What was written or changed the probe sees for itself: those attacks print nothing of weight.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Final

    Attack = tuple[str, str, Callable[[], object]]

_libc = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE: Final = 0x4206  # does not stop the process; the kernel detaches as we exit
_IPC_CREAT_PRIVATE: Final = 0o1600
_START_FIELD: Final = 19  # proc_pid_stat(5), field 22, counted from the state
SCRATCH_PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the attack is on these


FILES: Final = (
    *("write", "append", "open", "truncate", "link", "link-out", "through", "rename"),
    *("rename-out", "delete", "proc", "metadata", "read"),
)  # in STATE, one for each attack


def ipc_key(mark: str) -> int:
    """Return the System V key that goes with a mark."""
    return int(mark[-7:], 16)


def _check(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _write(path: str, flags: int) -> None:
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, b"canary")
    finally:
        os.close(fd)


def _link_and_write(source: str, link: str) -> None:
    os.link(source, link)
    _write(link, os.O_WRONLY)


def _symlink_and_write(target: str, link: str) -> None:
    os.symlink(target, link)
    _write(link, os.O_WRONLY | os.O_APPEND)


def _replace(target: str, source: str) -> None:
    _write(source, os.O_WRONLY | os.O_CREAT)
    os.replace(source, target)


def _content(state: str, home: str, runner: int) -> Iterator[Attack]:
    of, out = state.__add__, home.__add__
    create = os.O_WRONLY | os.O_CREAT
    yield "content", "write", lambda: _write(of("/write"), os.O_WRONLY)
    yield "content", "append", lambda: _write(of("/append"), os.O_WRONLY | os.O_APPEND)
    yield "content", "open-truncate", lambda: _write(of("/open"), os.O_WRONLY | os.O_TRUNC)
    yield "content", "truncate", lambda: os.truncate(of("/truncate"), 0)
    yield "content", "create", lambda: _write(of("/created"), create | os.O_EXCL)
    yield "content", "mkdir", lambda: os.mkdir(of("/made"))
    yield "content", "symlink", lambda: os.symlink("/", of("/symlink"))
    yield "content", "link-in", lambda: _replace(of("/link"), out("/source"))
    yield "content", "link-out", lambda: _link_and_write(of("/link-out"), out("/linked"))
    yield "content", "through-symlink", lambda: _symlink_and_write(of("/through"), out("/symbolic"))
    yield "content", "rename", lambda: os.rename(of("/rename"), of("/renamed"))
    yield "content", "rename-out", lambda: os.rename(of("/rename-out"), out("/taken"))
    yield "content", "delete", lambda: os.unlink(of("/delete"))
    root = f"/proc/{runner}/root"
    yield "content", "through-proc", lambda: _write(root + of("/proc"), os.O_WRONLY)
    yield "content", "rename-state", lambda: os.rename(state, of("-gone"))


def _metadata(state: str) -> Iterator[Attack]:
    path = state + "/metadata"
    yield "metadata", "chmod", lambda: os.chmod(path, 0o777)  # noqa: S103 - the attack
    yield "metadata", "utime", lambda: os.utime(path, (0, 0))
    yield "metadata", "xattr", lambda: os.setxattr(path, "user.canary", b"1")


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _reads(state: str, runner: int) -> Iterator[Attack]:
    yield "reads", "open", lambda: _read(state + "/read")
    yield "reads", "proc-root", lambda: _read(f"/proc/{runner}/root{state}/read")


def _trace(runner: int) -> None:
    _check(_libc.ptrace(_PTRACE_SEIZE, runner, None, None))


def _signals(runner: int) -> Iterator[Attack]:
    yield "signals", "kill", lambda: os.kill(runner, 0)
    yield "signals", "ptrace", lambda: _trace(runner)
    yield "signals", "mem", lambda: os.close(os.open(f"/proc/{runner}/mem", os.O_RDWR))
    yield "signals", "environ", lambda: _read(f"/proc/{runner}/environ")
    yield "signals", "fd", lambda: os.readlink(f"/proc/{runner}/fd/1")


def _limits(runner: int) -> Iterator[Attack]:
    def prlimit() -> None:
        found = resource.prlimit(runner, resource.RLIMIT_FSIZE)
        resource.prlimit(runner, resource.RLIMIT_FSIZE, found)

    def renice() -> None:
        os.setpriority(os.PRIO_PROCESS, runner, os.getpriority(os.PRIO_PROCESS, runner))

    def affinity() -> None:
        os.sched_setaffinity(runner, os.sched_getaffinity(runner))

    yield "limits", "prlimit", prlimit
    yield "limits", "renice", renice
    yield "limits", "affinity", affinity


def _connect(name: str) -> None:
    import socket  # noqa: PLC0415 - costs more than all else here, and mostly none is to try

    address = "\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(address)


def _send(port: int, *, stream: bool) -> None:
    import socket  # noqa: PLC0415 - as above

    with socket.socket(type=socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.connect(("127.0.0.1", port))
        client.send(b"canary")


def _network(tcp: int, udp: int) -> Iterator[Attack]:
    if tcp:
        yield "network", "tcp", lambda: _send(tcp, stream=True)
    if udp:
        # That it could be sent says nothing: whether it arrived, the probe sees.
        yield "sent", "udp", lambda: _send(udp, stream=False)


def _leftovers(mark: str) -> Iterator[Attack]:
    for place in SCRATCH_PLACES:
        path = f"{place}/{mark}"
        yield "leftovers", place, partial(_write, path, os.O_WRONLY | os.O_CREAT)
    segment = partial(_libc.shmget, ipc_key(mark), 1, _IPC_CREAT_PRIVATE)
    yield "leftovers", "sysv", lambda: _check(segment())


def _is_the_runner(pid: int, start: str) -> bool:
    """Tell whether a pid is the runner here too: in a pid namespace it is another process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return text[text.rindex(b")") + 2 :].split()[_START_FIELD].decode() == start


def _attacks(args: list[str]) -> Iterator[Attack]:
    state, home, pid, start, tcp, udp, mark, *sockets = args
    runner = int(pid) if _is_the_runner(int(pid), start) else 0
    yield from _metadata(state)
    yield from _reads(state, runner)
    if runner:
        yield from _signals(runner)
        yield from _limits(runner)
    for number, name in enumerate(sockets):
        yield "sockets", str(number), partial(_connect, name)
    yield from _network(int(tcp), int(udp))
    yield from _leftovers(mark)
    yield from _content(state, home, runner)


def main(args: list[str]) -> int:
    """Try every attack, each on its own, and say which worked."""
    split = args.index("--")
    for number, place in enumerate(args[split + 1 :]):
        if not os.access(place, os.W_OK):
            sys.stdout.write(f"unusable\t{number}\n")
    for promise, name, attack in _attacks(args[:split]):
        try:
            attack()
        except OSError:
            continue
        sys.stdout.write(f"{promise}\t{name}\n")
    sys.stdout.write("done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
