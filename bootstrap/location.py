"""Where a directory lies: in which filesystem, and at which path inside that filesystem."""

from __future__ import annotations

import os
import re
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from bootstrap.mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterable

# Filesystems that another host may write, by the names of proc_pid_mountinfo(5).
NETWORK: Final = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb3",
        "smbfs",
    }
)
UNKNOWN: Final = "unknown"  # what the mount table does not show, as in a chroot

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Location(NamedTuple):
    """A directory by its filesystem: the same whichever bind mount leads to it."""

    kind: str
    device: str
    path: PurePath

    def holds(self, other: Location) -> bool:
        """Tell whether `other` is this directory, or lies in it."""
        known = UNKNOWN not in (self.kind, other.kind)
        return known and self.device == other.device and other.path.is_relative_to(self.path)

    @property
    def shared(self) -> bool:
        """Tell whether other hosts may write here. What is not known counts as shared."""
        return self.kind in NETWORK or (self.kind == UNKNOWN and sys.platform == "linux")


def locate(fd: int) -> Location:
    """Locate an open directory by the mount table.

    Its kind is UNKNOWN without /proc. Right until something on the way is renamed or mounted.
    """
    try:
        here = PurePath(os.readlink(f"/proc/self/fd/{fd}"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return find_location(table, mount_of(fd)[1], here)
    except OSError:
        return Location(UNKNOWN, "", PurePath())


def find_location(table: Iterable[str], mount: int, here: PurePath) -> Location:
    """Return the location of the path `here` on a mount of proc_pid_mountinfo(5)'s table."""
    for line in table:
        number, _, device, root, point, *rest = line.split(" ")
        if number == str(mount) and here.is_relative_to(_plain(point)):
            kind = rest[rest.index("-") + 1]
            return Location(kind, device, PurePath(_plain(root), here.relative_to(_plain(point))))
    return Location(UNKNOWN, "", here)


def _plain(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
