"""Which tier is chosen, and what is said of it, on this machine and on lesser ones."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any, Final

import pytest

from attempt_runner.isolate import PROMISES, STRONGEST_FIRST
from tests.machine import landlock_abi, needs
from tests.someone import AGENT, PLAIN, ROOT, common_ground, plain_python, run_python

SIMULATE: Final = (sys.executable, str(ROOT / "tests/simulate.py"))
NEEDED: Final = {"landlock": "landlock", "bwrap": "bwrap", "uid": "root"}

pytestmark = [
    needs("linux"),
    pytest.mark.skipif(plain_python() is None, reason="machine lacks: a Python for every user"),
]


def choose(
    requested: str, *flags: str, plain: bool = False, lacking: str = "", listen: str = ""
) -> dict[str, Any]:
    """Choose in a fresh process; `{base}` in a flag is its directory."""
    python = plain_python() if plain else sys.executable
    wrapper = (str(python), str(ROOT / "tests/simulate.py"), lacking) if lacking else ()
    with common_ground(PLAIN if plain else None) as base:
        more = ("--listen", listen.replace("{base}", str(base))) if listen else ()
        words = [flag.replace("{base}", str(base)) for flag in flags]
        done = run_python(
            ROOT / "tests/chooser.py",
            requested,
            str(base),
            *words,
            *more,
            plain=plain,
            wrapper=wrapper,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def parts_of(tier: str) -> list[str]:
    """Return what the machine must have for a tier, started by root as another user."""
    return [part for name, part in NEEDED.items() if name in tier]


@needs("root", "bwrap", "landlock")
def test_root_with_a_user_gets_the_strongest() -> None:
    """Everything together keeps every promise."""
    found = choose("auto", "--user", str(AGENT), "--no-network")
    assert found["tier"] == "bwrap+landlock"
    assert found["promises"] == dict.fromkeys(PROMISES, True)
    assert found["network"] == "off"
    assert found["cleanup"] == "pid-namespace"
    assert found["remains"] == []


@needs("bwrap", "landlock")
def test_a_plain_user_gets_the_strongest() -> None:
    """No root is needed for any promise."""
    found = choose("auto", "--no-network", plain=True)
    assert found["tier"] == "bwrap+landlock"
    assert found["promises"] == dict.fromkeys(PROMISES, True)
    assert found["remains"] == []


@needs("root", "landlock")
def test_root_without_a_user_is_not_offered_bubblewrap() -> None:
    """Bubblewrap keeps nothing from real root: Landlock is left, and says what it lacks."""
    found = choose("auto")
    assert found["tier"] == "landlock"
    assert "real root" in found["weaker"]
    kept = {name for name, held in found["promises"].items() if held}
    assert {"content", "reads", "sockets"} <= kept
    assert not {"metadata", "limits", "leftovers"} & kept
    assert ("signals" in kept) == (landlock_abi() >= 6)


@needs("root", "landlock")
def test_without_user_namespaces_root_falls_back_to_another_user() -> None:
    """A hardened kernel leaves the uid tiers, and the reason is kept."""
    found = choose("auto", "--user", str(AGENT), lacking="no-userns")
    assert found["tier"] == "uid+landlock"
    assert "bwrap" in found["weaker"]


@needs("landlock")
def test_without_user_namespaces_a_plain_user_falls_back_to_landlock() -> None:
    """What is left keeps the content."""
    assert choose("auto", plain=True, lacking="no-userns")["tier"] == "landlock"


@needs("bwrap")
def test_without_landlock_a_plain_user_falls_back_to_bubblewrap() -> None:
    """An old kernel does not make the stronger tier."""
    found = choose("auto", plain=True, lacking="no-landlock")
    assert found["tier"] == "bwrap"
    assert "ABI 0" in found["weaker"]


@needs("root")
def test_without_landlock_root_alone_is_refused() -> None:
    """`auto` never becomes `none`: 78, and how to ask for it."""
    found = choose("auto", lacking="no-landlock")
    assert found["status"] == 78
    assert found["error"].startswith("isolation: auto: ")
    assert "--isolation none" in found["error"]


@needs("root", "landlock")
def test_root_without_its_capabilities_takes_what_is_left() -> None:
    """A container's root that may not switch users or mount still has Landlock."""
    caps = "-sys_admin,-setuid,-setgid"
    wrapper = ("setpriv", "--bounding-set", caps, "--")
    with common_ground() as base:
        script = ROOT / "tests/chooser.py"
        done = run_python(script, "auto", str(base), plain=False, wrapper=wrapper)
    assert json.loads(done.stdout)["tier"] == "landlock", done.stderr


@pytest.mark.parametrize("tier", STRONGEST_FIRST)
def test_a_tier_that_is_asked_for_is_that_or_nothing(tier: str) -> None:
    """Where it cannot be had: 78 and a message that begins with its name, never another tier."""
    found = choose(tier, plain=True)
    if "uid" in tier:
        assert found["status"] == 78
        assert found["error"].startswith(f"isolation: {tier}: ")
    elif "error" not in found:
        assert found["tier"] == tier
    else:
        assert found["status"] == 78


def test_an_unknown_tier_is_refused() -> None:
    """A name that is none names those that are."""
    found = choose("jail", plain=True)
    assert found["status"] == 78
    assert "bwrap+landlock" in found["error"]


def test_none_keeps_nothing_and_says_so() -> None:
    """It is given when it is named, and no promise can be required of it."""
    found = choose("none", plain=True)
    assert found["tier"] == "none"
    assert not any(found["promises"].values())
    assert choose("none", "--require", "content", plain=True)["status"] == 78


@needs("landlock")
def test_a_required_promise_that_is_not_kept_is_refused() -> None:
    """Landlock does not keep metadata: asked for, it is 78, and `auto` looks for more."""
    found = choose("landlock", "--require", "metadata", plain=True)
    assert found["status"] == 78
    assert "metadata not kept" in found["error"]


@needs("landlock")
@pytest.mark.parametrize("reach", ["{base}/docker.sock", "{base}/tmux-1"])
def test_auto_takes_no_tier_with_a_control_socket_in_reach(reach: str) -> None:
    """Landlock has no rule for a socket on a path; the operator can accept it."""
    lacking = "no-userns"
    refused = choose("auto", plain=True, lacking=lacking, listen=reach)
    assert refused["status"] == 78
    assert "sockets not kept" in refused["error"]
    accepted = choose("auto", "--allow", reach, plain=True, lacking=lacking, listen=reach)
    assert accepted["tier"] == "landlock"
    named = choose("landlock", plain=True, lacking=lacking, listen=reach)
    assert named["promises"]["sockets"] is False


@needs("bwrap", "landlock")
def test_bubblewrap_covers_a_control_socket() -> None:
    """A socket beneath /tmp is not there any more."""
    found = choose("auto", plain=True, listen="{base}/docker.sock")
    assert found["tier"] == "bwrap+landlock"


@needs("bwrap", "landlock")
def test_an_abstract_control_socket_needs_landlocks_scope() -> None:
    """It is in no mount namespace; only a network namespace or a scope keeps it out."""
    if landlock_abi() < 6:
        pytest.skip("machine lacks: Landlock ABI 6")
    name = f"@/tmp/dbus-{secrets.token_hex(8)}"
    assert choose("bwrap", plain=True, listen=name)["promises"]["sockets"] is False
    assert choose("bwrap+landlock", plain=True, listen=name)["promises"]["sockets"] is True


@needs("landlock")
def test_landlock_leaves_datagrams_when_the_network_is_off() -> None:
    """TCP is stopped, which is said; the promise is not kept."""
    if landlock_abi() < 4:
        pytest.skip("machine lacks: Landlock ABI 4")
    found = choose("landlock", "--no-network", plain=True)
    assert found["network"] == "tcp-off"
    assert found["promises"]["network"] is False


@needs("root")
def test_another_user_alone_cannot_turn_the_network_off() -> None:
    """Asked for both, it is refused."""
    found = choose("uid", "--user", str(AGENT), "--no-network")
    assert found["status"] == 78
    assert "network" in found["error"]


@needs("root")
@pytest.mark.parametrize("tier", ["uid", "uid+landlock", "bwrap"])
def test_a_workspace_that_the_child_cannot_write_is_named(tier: str) -> None:
    """The operator is told which directory to give to the user, before anything starts."""
    if tier == "uid+landlock" and landlock_abi() < 3:
        pytest.skip("machine lacks: landlock")
    found = choose(tier, "--user", str(AGENT), "--unwritable")
    assert found["status"] == 78
    assert "workspace" in found["error"] or "Permission denied" in found["error"]
