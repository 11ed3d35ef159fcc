"""Confine this process, then become the command: the one file of ours a command starts behind.

Started by path, never imported by what it starts, with the standard library alone:

    python -I -S inside.py FLAG... -- COMMAND ARG...

In: the flags below, each with one value, and the environment that the command is to have.

    --status N        descriptor to report on
    --parent PID      die with this process (PR_SET_PDEATHSIG); exit if it is gone already
    --cgroup DIR      join this version 2 cgroup
    --processes N     RLIMIT_NPROC
    --user UID:GID    become this user, without supplementary groups
    --landlock TCP    restrict the filesystem, and with `off` TCP too; the next three apply
    --write PATH      may be written, and everything beneath
    --device PATH     may be opened for writing; skipped if missing
    --hide PATH       may not be read; every other path may

Out: `ready` on the status descriptor, and the command runs in this very process, without further
privileges and without that descriptor. Or a line `error: ...` there, and exit 125. Nothing that
is written there is trusted: it can only make the runner refuse.

Sources: landlock(7), prctl(2), capabilities(7). It starts before every command, so it imports
neither json nor typing nor signal: together they cost as much as the interpreter itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

FAILED: Final = 125  # what env(1) and chroot(1) exit with when they fail themselves
MINIMUM_ABI: Final = 3  # before it, truncate(2) of a read-only path was not covered

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH, _RULESET_VERSION = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_ALL: Final = (1 << 15) - 1  # of ABI 3
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAPABILITY_BITS: Final = 64
_SIGKILL, _SIGPIPE, _SIGXFSZ, _SIG_SETMASK = 9, 13, 25, 2  # asm-generic/signal.h
_SIGNAL_SET_BYTES: Final = 128  # sizeof(sigset_t) of glibc and musl

_FLAGS: Final = ("status", "parent", "cgroup", "processes", "user")
_RULES: Final = ("landlock", "write", "device", "hide")


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none or it is turned off."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)
    return max(0, int(version))


def _parse(args: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the flags' values and the command; only our own code writes them."""
    split = list(args).index("--")
    flags: dict[str, list[str]] = {name: [] for name in _FLAGS + _RULES}
    for at in range(0, split, 2):
        flags[args[at].removeprefix("--")].append(args[at + 1])
    return flags, list(args[split + 1 :])


def _beside(hidden: Sequence[str]) -> Iterator[str]:
    """Yield what must stay readable: all that lies beside the way from `/` to a hidden path.

    Landlock can only grant, and a grant holds for everything beneath. So to hide one directory
    every other entry of each of its parents is granted by name.
    """
    parents = {parent for path in hidden for parent in _parents(path)}
    for parent in sorted(parents):
        try:
            names = os.listdir(parent)
        except OSError:
            continue  # nobody may list it: only the way through it is known
        for name in names:
            path = os.path.join(parent, name)
            if path not in parents and path not in hidden:
                yield path


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


class _Landlock:
    """A ruleset under construction; what no rule grants is refused once it is enforced."""

    def __init__(self, *, tcp: bool, hide_reads: bool) -> None:
        abi = landlock_abi()
        if abi < MINIMUM_ABI:
            raise OSError(f"landlock: the kernel has ABI {abi}, needed is {MINIMUM_ABI}")
        self.handled = _ALL | (_IOCTL_DEV if abi >= 5 else 0)  # noqa: PLR2004 - ABI table
        if not hide_reads:
            self.handled &= ~_READ
        ruleset = _Ruleset(
            self.handled,
            _BIND_TCP | _CONNECT_TCP if not tcp and abi >= 4 else 0,  # noqa: PLR2004 - as above
            _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= 6 else 0,  # noqa: PLR2004 - as above
        )
        size = ctypes.c_size_t(ctypes.sizeof(ruleset))
        created = _libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
        self.fd = _call("landlock_create_ruleset", created)

    def grant(self, path: str, rights: int, *, optional: bool = False) -> None:
        """Allow `rights` on a path and beneath; rights of directories never go to a file."""
        try:
            fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            if optional:
                return
            raise
        try:
            self._add(fd, rights & self.handled)
        finally:
            os.close(fd)

    def _add(self, fd: int, rights: int) -> None:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISDIR(mode):
            rights &= _FILE_RIGHTS
        if stat.S_ISLNK(mode) or not rights:
            return  # a link grants nothing: its target is granted, or not, where it lies
        rule = _PathBeneath(rights, fd)
        added = _libc.syscall(_ADD_RULE, self.fd, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        _call("landlock_add_rule", added)

    def enforce(self) -> None:
        _call("landlock_restrict_self", _libc.syscall(_RESTRICT_SELF, self.fd, 0))
        os.close(self.fd)


def _prepare_landlock(flags: dict[str, list[str]]) -> _Landlock | None:
    if not flags["landlock"]:
        return None
    rules = _Landlock(tcp=flags["landlock"] != ["off"], hide_reads=bool(flags["hide"]))
    if flags["hide"]:
        rules.grant("/", _READ_DIR)
        for path in _beside(flags["hide"]):
            rules.grant(path, _READ, optional=True)
    for path in flags["write"]:
        # No device node may be made there, and none that lies there may be driven.
        rules.grant(path, _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK))
    for path in flags["device"]:
        rules.grant(path, _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV, optional=True)
    return rules


def _join(cgroup: str) -> None:
    with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as members:
        members.write("0")


def _become(user: str) -> None:
    uid, gid = (int(part) for part in user.split(":"))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _drop_capabilities() -> None:
    """Give up every capability, for this process and for whatever it executes."""
    for capability in range(_CAPABILITY_BITS):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to a plain user: none to drop
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _call("capset", _libc.capset(header, none))


def _die_with(parent: int) -> None:
    _call("prctl", _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))
    if os.getppid() != parent:  # it died before the line above
        raise OSError("the runner is gone")


def _restore_signals() -> None:
    """Undo what this interpreter changed: a command expects SIGPIPE to end it."""
    _libc.signal(_SIGPIPE, None)
    _libc.signal(_SIGXFSZ, None)
    _libc.sigprocmask(_SIG_SETMASK, ctypes.create_string_buffer(_SIGNAL_SET_BYTES), None)


def _environment() -> dict[bytes, bytes]:
    """Return the environment as it was given: the interpreter adds LC_CTYPE to it (PEP 538)."""
    with open("/proc/self/environ", "rb") as block:
        pairs = (entry.partition(b"=") for entry in block.read().split(b"\0") if entry)
        return {name: value for name, _, value in pairs}


def confine(flags: dict[str, list[str]]) -> None:
    """Take on every restriction the flags ask for, in the one order that works.

    Paths are opened before the user changes, who may not reach them; the parent-death signal
    is set after, since a change of user clears it.
    """
    for cgroup in flags["cgroup"]:
        _join(cgroup)
    rules = _prepare_landlock(flags)
    for count in flags["processes"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (int(count), int(count)))
    for user in flags["user"]:
        _become(user)
    _call("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _drop_capabilities()
    if rules is not None:
        rules.enforce()
    for parent in flags["parent"]:
        _die_with(int(parent))


def _execute(command: list[str], environment: dict[bytes, bytes]) -> None:
    """Replace this process; raise OSError. Nothing is imported: no library may be in reach."""
    name = os.fsencode(command[0])
    places = [b""] if b"/" in name else environment.get(b"PATH", b"/usr/bin:/bin").split(b":")
    missing: OSError = FileNotFoundError(f"{command[0]}: not found")
    for place in places:
        try:
            os.execve(os.path.join(place, name), command, environment)  # noqa: S606 - a list argv
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            missing = error
    raise missing


def main(args: Sequence[str]) -> int:
    """Confine this process and execute the command; return only if that failed."""
    flags, command = _parse(args)
    for number in flags["status"]:
        os.set_inheritable(int(number), False)  # noqa: FBT003 - takes no keyword
    try:
        environment = _environment()
        confine(flags)
        _restore_signals()
        _report(flags, "ready")
        _execute(command, environment)
    except (OSError, ValueError, OverflowError) as error:
        _report(flags, f"error: {str(error)!a}")
    return FAILED


def _report(flags: dict[str, list[str]], line: str) -> None:
    for number in flags["status"]:
        os.write(int(number), line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
