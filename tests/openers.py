"""Run a function with `openat2`, and once more where the kernel refuses to have it.

The second way is a real one: a seccomp filter answers ENOSYS, as an old kernel or a container
would. It binds one fresh thread and the processes started from it, never the test process.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

import pytest

from tests.machine import needs

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

OPENAT2: Final = 437
PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38
SECCOMP_MODE_FILTER: Final = 2
RETURN_ERRNO: Final = 0x00050000
RETURN_ALLOW: Final = 0x7FFF0000


class Instruction(ctypes.Structure):
    """`struct sock_filter` of linux/filter.h."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class Program(ctypes.Structure):
    """`struct sock_fprog` of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction)))


def deny_openat2() -> None:
    """Answer ENOSYS to `openat2` in this thread and all it starts from now on."""
    if sys.platform != "linux":
        return
    instructions = (Instruction * 4)(
        Instruction(0x20, 0, 0, 0),  # load the syscall's number
        Instruction(0x15, 0, 1, OPENAT2),  # not openat2: skip one
        Instruction(0x06, 0, 0, RETURN_ERRNO | errno.ENOSYS),
        Instruction(0x06, 0, 0, RETURN_ALLOW),
    )
    program = Program(len(instructions), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


class Caller(Protocol):
    """What the `call` of `both_openers` does: call a function, one way or the other."""

    def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the function returns."""


def with_openat2(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function as it is."""
    return function(*args, **kwargs)


def without_openat2(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function where `openat2` does not exist, so that paths are walked."""
    with ThreadPoolExecutor(max_workers=1, initializer=deny_openat2) as pool:
        return pool.submit(function, *args, **kwargs).result()


both_openers: Final = pytest.mark.parametrize(
    "call",
    [
        pytest.param(with_openat2, id="openat2", marks=needs("linux")),
        pytest.param(without_openat2, id="walk"),
    ],
)
