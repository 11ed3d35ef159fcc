"""Control sockets are found by where they lie, by what is told of them, and by who listens."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from attempt_runner.sockets import control_sockets
from tests.machine import needs
from tests.someone import common_ground


@pytest.fixture
def listener() -> socket.socket:
    """Return a socket to bind."""
    return socket.socket(socket.AF_UNIX)


@needs("linux")
@pytest.mark.parametrize("name", ["docker.sock", "tmux-0", "ssh-agent", "containerd.sock"])
def test_a_listening_socket_with_a_known_name_is_found(name: str, listener: socket.socket) -> None:
    """The kernel's table tells of it, wherever it lies."""
    with common_ground() as base, listener:
        listener.bind(str(base / name))
        listener.listen()
        assert str(base / name) in control_sockets({})
        assert str(base / name) not in control_sockets({}, [str(base / name)])


@needs("linux")
def test_an_abstract_socket_is_found(listener: socket.socket) -> None:
    """It has no file; its name is shown with an `@`, and can be allowed so."""
    name = f"/tmp/dbus-{secrets.token_hex(8)}"  # noqa: S108 - not a file
    with listener:
        listener.bind("\0" + name)
        listener.listen()
        assert f"@{name}" in control_sockets({})
        assert f"@{name}" not in control_sockets({}, [f"@{name}"])


@needs("linux")
def test_an_unknown_name_is_not_a_control_socket(listener: socket.socket) -> None:
    """A database that listens does no work for a child."""
    with common_ground() as base, listener:
        listener.bind(str(base / "database"))
        listener.listen()
        assert str(base / "database") not in control_sockets({})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SSH_AUTH_SOCK", "{}"),
        ("TMUX", "{},123,0"),
        ("DOCKER_HOST", "unix://{}"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path={},guid=0123"),
    ],
)
def test_an_environment_tells_of_a_socket(
    variable: str, value: str, listener: socket.socket
) -> None:
    """Each program's own way to write it is understood; the name itself may be any."""
    with common_ground() as base, listener:
        listener.bind(str(base / "any"))
        assert str(Path(base / "any")) in control_sockets({variable: value.format(base / "any")})


def test_an_environment_that_tells_of_nothing_is_no_error() -> None:
    """Empty, a plain file, a file that is not there, a network address."""
    for value in ("", "/etc/passwd", "/nowhere", "tcp://127.0.0.1:2375", "\udcff"):
        found = control_sockets({"DOCKER_HOST": value, "SSH_AUTH_SOCK": value})
        assert value not in found
