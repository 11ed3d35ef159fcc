"""Open the state directory of a workspace, refusing every place that cannot be trusted."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bootstrap.beneath import DIRECTORY_FLAGS
from bootstrap.descent import PASS_FLAGS, Descent, make_durably, refused
from bootstrap.files import Closing, Directory, storage_error
from bootstrap.location import locate
from bootstrap.place import folder_name, identify_workspace

if TYPE_CHECKING:
    from pathlib import Path

    from bootstrap.location import Location
    from bootstrap.place import Workspace

FOLDER_MODE: Final = 0o700

# What the place itself causes: the same call will never work.
_MISPLACED: Final = frozenset(
    {
        errno.EACCES,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


@dataclass(frozen=True, slots=True)
class State(Closing):
    """The open state directory of one workspace.

    `workspace` is the workspace's real path, device and inode. `exposed` are directories
    above the state that others may write, taken because each is a mount root (an emptyDir is
    0777): whoever can reach them can take the state away, so the agent must not.
    """

    directory: Directory
    workspace: Path
    device: int
    inode: int
    exposed: tuple[Path, ...]

    def close(self) -> None:
        """Close the descriptor; the object must not be used afterwards."""
        self.directory.close()


def open_state(workspace: Path, root: Path, *, create: bool, named: bool = False) -> State:
    """Open the folder of a workspace in the state directory `root`, an absolute path.

    With `create`, what is missing is made. `named` says that the operator chose `root`: only
    then may it lie on a filesystem that other hosts share, and the folder is this host's own.
    Raises ConfigurationError when the folder is not 0700 and ours, when root or folder is a
    link, when root lies in the workspace or around it, whatever path leads there, and when
    somebody else could replace a directory above; StorageError when it cannot be made.
    """
    known = identify_workspace(workspace)
    if not root.is_absolute():
        raise refused(root, "an absolute path", "a relative one")
    try:
        with Descent((known.device, known.inode)) as descent:
            descent.walk(root, create=create)
            location = locate(descent.fd)
            _require_apart(descent, location, known)
            host = sharing_host(descent.path, location, named=named)
            folder = _open_folder(descent, folder_name(known.path, host), create=create)
            return State(folder, *known, tuple(descent.exposed))
    except OSError as error:
        if error.errno in _MISPLACED:
            found = os.strerror(error.errno or errno.EIO)
            raise refused(root, "a directory to keep state in", found) from error
        raise storage_error(root, error) from error


def _require_apart(descent: Descent, location: Location, workspace: Workspace) -> None:
    """Refuse a place around the workspace, or in it by a bind mount of a part of it."""
    above = (os.stat(path) for path in (workspace.path, *workspace.path.parents))
    if any(os.path.samestat(os.fstat(descent.fd), status) for status in above):
        raise refused(descent.path, "a place apart from the workspace", "one around it")
    fd = os.open(workspace.path, PASS_FLAGS)
    try:
        other = locate(fd)
    finally:
        os.close(fd)
    if other.holds(location) or location.holds(other):
        raise refused(descent.path, "a place apart from the workspace", "a mount of the same")


def sharing_host(root: Path, location: Location, *, named: bool) -> str | None:
    """Return the host that a folder is keyed by, None where no other host can write.

    Raises ConfigurationError for a shared filesystem that the operator did not name.
    """
    if not location.shared:
        return None
    if not named:
        remedy = "name it with --state-dir if no other machine uses it, or name a local directory"
        raise refused(root, "a local filesystem", f"filesystem {location.kind}", remedy)
    return os.uname().nodename


def _open_folder(descent: Descent, name: str, *, create: bool) -> Directory:
    path = descent.path / name
    if create:
        make_durably(name, descent.fd)
    try:
        fd = os.open(name, DIRECTORY_FLAGS, dir_fd=descent.fd)
    except FileNotFoundError as error:
        remedy = "run a bootstrap first, or name the right --workspace and --state-dir"
        raise refused(path, "the state of this workspace", "none", remedy) from error
    except NotADirectoryError as error:  # also what a link answers
        raise refused(path, "a directory", "a link, or another kind of file") from error
    status = os.fstat(fd)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if status.st_uid != os.geteuid() or mode != FOLDER_MODE:
        os.close(fd)
        found = f"owner {status.st_uid}, mode {mode:04o}"
        raise refused(path, f"owner {os.geteuid()}, mode {FOLDER_MODE:04o}", found)
    return Directory(fd, path)
