"""A user is one job's alone, and nothing of it outlives the job."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from attempt_runner.isolate import User
from attempt_runner.leftovers import find_leftovers, kill_user, remove_leftovers
from attempt_runner.users import hold_user, parse_pool, resolve_user
from bootstrap.errors import ConfigurationError, LockHeldError
from tests.machine import needs
from tests.someone import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# A worker of pytest has threads; the runner, which forks the same way, has none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
TENANT: Final = (sys.executable, str(ROOT / "tests/tenant.py"))


@pytest.fixture
def uid() -> Iterator[int]:
    """Return a user that no other test uses; leave nothing of it."""
    number = 70_000 + secrets.randbelow(1_000_000)
    yield number
    if os.geteuid() == 0:
        kill_user(User(number, number), float("inf"))
        remove_leftovers(find_leftovers(number), User(number, number))


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """Return a place for the locks that does not exist yet."""
    return tmp_path / "locks"


def play(locks: Path, uid: int, scenario: str) -> dict[str, Any]:
    """Play a scenario to its end."""
    done = subprocess.run(
        (*TENANT, str(locks), str(uid), scenario), capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


@needs("root", "linux")
def test_nothing_is_left_when_the_job_ends(locks: Path, uid: int) -> None:
    """Daemons, files in shared places and System V objects are gone."""
    assert play(locks, uid, "leave") == {"inherited": [], "left": []}


@needs("root", "linux")
def test_what_a_killed_job_left_is_cleared_by_the_next(locks: Path, uid: int) -> None:
    """The mark in the lock file tells that the leftovers are ours to remove."""
    play(locks, uid, "crash")
    assert len(find_leftovers(uid)) == 6
    found = play(locks, uid, "take")
    assert len(found["inherited"]) == 6
    assert found["left"] == []
    assert play(locks, uid, "take")["inherited"] == []


@needs("root", "linux")
def test_what_another_left_is_refused_and_kept(locks: Path, uid: int) -> None:
    """Files of a user that no job of ours held are somebody's: 77, untouched."""
    path = Path("/var/tmp", f"mess-{uid}")  # noqa: S108 - where leftovers are
    path.write_text("precious")
    os.chown(path, uid, uid)
    found = play(locks, uid, "take")
    assert found["status"] == 77
    assert str(path) in found["error"]
    assert path.exists()


@needs("root", "linux")
def test_a_living_process_of_the_user_is_refused(locks: Path, uid: int) -> None:
    """77, and it is not killed."""
    user = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--")
    with subprocess.Popen((*user, "sleep", "60")) as sleeper:
        while f"\t{uid}\t" not in Path(f"/proc/{sleeper.pid}/status").read_text():
            pass
        found = play(locks, uid, "take")
        assert (found["status"], sleeper.poll()) == (77, None)
        assert str(sleeper.pid) in found["error"]
        sleeper.kill()


@needs("root", "linux")
def test_a_user_in_use_is_75_and_a_pool_goes_on_to_the_next(locks: Path, uid: int) -> None:
    """Two jobs never share a user."""
    argv = (*TENANT, str(locks), str(uid), "hold")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert play(locks, uid, "take")["status"] == LockHeldError.status
        with hold_user(parse_pool(f"{uid}-{uid + 1}"), locks=locks) as tenancy:
            assert tenancy.user.uid == uid + 1
        holder.communicate(b"")


@needs("root", "linux")
def test_the_workspace_of_the_user_is_no_leftover(uid: int) -> None:
    """Paths that are to be kept may be the user's, and what holds them too."""
    path = Path("/tmp", f"mess-{uid}", "workspace")  # noqa: S108 - where leftovers are
    path.mkdir(parents=True)
    os.chown(path.parent, uid, uid)
    assert find_leftovers(uid) == [path.parent]
    assert find_leftovers(uid, [path]) == []


@needs("root", "linux")
def test_a_file_deep_in_a_shared_directory_is_found(uid: int) -> None:
    """A directory that all may write is looked into, whoever owns it."""
    shared = Path("/tmp", f"shared-{uid}")  # noqa: S108 - where leftovers are
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "mess").touch()
    os.chown(shared / "mess", uid, uid)
    assert find_leftovers(uid) == [shared / "mess"]
    remove_leftovers([shared / "mess"], User(uid, uid))
    shared.rmdir()


@needs("root")
@pytest.mark.parametrize("text", ["root", "0", "no-such-user", "", "-1", "99999999999", "\uff11"])
def test_a_user_must_exist_and_not_be_root(text: str) -> None:
    """Names and numbers that cannot be a child's user are refused."""
    with pytest.raises(ConfigurationError):
        resolve_user(text)


@needs("root")
def test_a_user_comes_by_name_or_number() -> None:
    """A number without an entry is its own group."""
    assert resolve_user("65534") == resolve_user("nobody")
    assert resolve_user("64999") == User(64999, 64999)


@pytest.mark.parametrize("text", ["", "5", "5-", "9-5", "0-3", "a-b", "1-2-3"])
def test_a_pool_is_two_numbers_in_order(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigurationError):
        parse_pool(text)


@needs("plain-user")
def test_only_root_can_name_a_user() -> None:
    """A plain user's runner cannot become another, and says so."""
    with pytest.raises(ConfigurationError):
        resolve_user("nobody")


@needs("root", "linux")
def test_a_lock_directory_of_others_is_refused(locks: Path, uid: int) -> None:
    """Whoever can write it could hold every user, or none."""
    locks.mkdir()
    locks.chmod(0o777)
    found = play(locks, uid, "take")
    assert found["status"] == 78
