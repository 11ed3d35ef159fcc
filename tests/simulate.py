"""Become a machine that lacks something, then the command: by a seccomp filter.

    python simulate.py no-userns|no-landlock COMMAND ARG...

`no-userns` refuses a new user namespace as a hardened kernel does (EPERM); `no-landlock` knows
no Landlock (ENOSYS). Source: seccomp(2), linux/filter.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

X86 = platform.machine() == "x86_64"
CLONE, UNSHARE = (56, 272) if X86 else (220, 97)
CLONE3, LANDLOCK_CREATE_RULESET = 435, 444
NEW_USER = 0x10000000
NUMBER, FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data, the latter's low half
LOAD, IF_EQUAL, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2


def statement(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction: struct sock_filter."""
    return struct.pack("HBBI", code, yes, no, value)


def fail(number: int, code: int) -> bytes:
    """Refuse one system call, whatever its arguments."""
    return statement(IF_EQUAL, number, 0, 1) + statement(RETURN, FAIL | code)


def fail_with_flag(number: int, flag: int, code: int) -> bytes:
    """Refuse a system call whose first argument has a flag."""
    return (
        statement(LOAD, NUMBER)
        + statement(IF_EQUAL, number, 0, 3)
        + statement(LOAD, FIRST_ARGUMENT)
        + statement(IF_ANY_BIT, flag, 0, 1)
        + statement(RETURN, FAIL | code)
    )


FILTERS = {
    "no-landlock": statement(LOAD, NUMBER) + fail(LANDLOCK_CREATE_RULESET, errno.ENOSYS),
    # clone3 hides its flags in memory: unknown, so that the C library falls back to clone.
    "no-userns": fail_with_flag(CLONE, NEW_USER, errno.EPERM)
    + fail_with_flag(UNSHARE, NEW_USER, errno.EPERM)
    + statement(LOAD, NUMBER)
    + fail(CLONE3, errno.ENOSYS),
}


def install(name: str) -> None:
    """Put the filter on this process and all that it starts."""
    program = FILTERS[name] + statement(RETURN, ALLOW)
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.create_string_buffer(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    install(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - a list argv
