"""Find control sockets: servers that would do a child's work for it, outside of its tier.

Whoever can connect to one of them writes the state directory with the server's hands. Known
are those that a name gives away; a helper that an operator left listening under another name
is not found.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LISTENING: Final = 0x10000  # __SO_ACCEPTCON, the flags column of /proc/net/unix
_COLUMNS: Final = 8
_NAMES: Final = re.compile(
    r"docker|containerd|podman|crio\.sock|buildkit|systemd/private|systemd/io\.|dbus|/bus$"
    r"|tmux-|/screen|ssh-|/ssh/|gpg-agent|gnupg|/emacs|nvim|vscode|libvirt|lxd|incus|snapd"
)
# A socket that was mounted into this container belongs to another network namespace, whose
# table is not ours to see: the usual places are looked at as well.
_PLACES: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/podman/podman.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/systemd/private",
    "/run/dbus/system_bus_socket",
    "/run/user/*/bus",
    "/run/user/*/docker.sock",
    "/run/user/*/podman/podman.sock",
    "/run/user/*/systemd/private",
    "/tmp/ssh-*/agent.*",  # noqa: S108 - looked for, not made
    "/tmp/tmux-*/*",  # noqa: S108 - as above
)
_VARIABLES: Final = ("SSH_AUTH_SOCK", "TMUX", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS")


def control_sockets(environ: Mapping[str, str], allowed: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the control sockets of this machine, sorted; an abstract one begins with `@`.

    `allowed` are those that the operator accepts. Whether one can be connected to is not
    looked at: that depends on who asks, and from where.
    """
    places = {path for pattern in _PLACES for path in glob.glob(pattern)}
    places.update(_from_variables(environ))
    found = {os.path.realpath(path) for path in places if _is_socket(path)}
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        found.update(_listening(table))
    return tuple(sorted(found - {os.path.realpath(path) for path in allowed} - set(allowed)))


def _from_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths in `tmux`'s triple, a `unix://` URL, and a D-Bus address."""
    for name in _VARIABLES:
        for part in re.split(r"[,;]", environ.get(name, "")):
            yield re.sub(r"^unix:(//|path=)", "", part)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _listening(table: Iterable[str]) -> Iterator[str]:
    """Yield the names in /proc/net/unix (proc_net(5)) that listen and are known."""
    for line in table:
        columns = line.rstrip("\n").split(None, _COLUMNS - 1)
        with suppress(ValueError, IndexError):  # the heading, or a name with a line break in it
            flags, name = int(columns[3], 16), columns[7]
            if flags & _LISTENING and name.startswith(("/", "@")) and _NAMES.search(name):
                yield name
