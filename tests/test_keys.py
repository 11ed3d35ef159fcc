from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from attempt_runner.keyfiles import read_private_key, write_pair
from attempt_runner.keys import (
    KINDS,
    BadSignatureError,
    Kind,
    generate_key,
    parse_private_key,
    parse_public_key,
)
from bootstrap.errors import ConfigurationError
from tests.jobs import ROOT_COMMAND
from tests.machine import needs
from tests.signing import make_signed, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Job

OVERFLOW: Final = 65534
# Takes the extra's libraries away before anything is imported, then runs the command line.
WITHOUT_EXTRA: Final = """\
import sys
for name in ("cryptography", "securesystemslib"):
    sys.modules[name] = None
from attempt_runner.__main__ import main
main()
"""


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
def test_keygen_makes_a_pair_that_only_its_owner_reads(tmp_path: Path, kind: Kind) -> None:
    """Modes do not follow the umask, and openssl-made tools can read both halves."""
    place = tmp_path / "new" / "keys"
    before = os.umask(0)
    try:
        done = run("keygen", "--out", str(place), "--type", kind)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert [_mode(path) for path in (place, place / "key.pem", place / "key.pub.pem")] == [
        0o700,
        0o600,
        0o644,
    ]
    private = parse_private_key((place / "key.pem").read_bytes(), "key")
    public = parse_public_key((place / "key.pub.pem").read_bytes(), "key")
    assert (private.public.pem, private.public.kind) == (public.pem, kind)
    assert public.keyid in done.stdout
    assert (place / "key.pem").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize("name", ["key.pem", "key.pub.pem"])
def test_keygen_never_overwrites(tmp_path: Path, name: str) -> None:
    """Not a key, not half a pair, not through a dangling link; and it leaves nothing behind."""
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    done = run("keygen", "--out", str(tmp_path))
    assert (done.returncode, done.stdout) == (78, "")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_keygen_refuses_the_workspace_by_any_path(tmp_path: Path) -> None:
    """An agent would read the key, or plant its own."""
    workspace = tmp_path / "workspace"
    (workspace / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(workspace / "inner")
    for place in (workspace / "keys", tmp_path / "link" / "keys", workspace / "a" / ".." / "keys"):
        done = run("keygen", "--out", str(place), "--workspace", str(workspace))
        assert (done.returncode, done.stdout) == (78, "")
    assert list((workspace / "inner").iterdir()) == []


def test_keygen_refuses_a_directory_that_others_may_write(tmp_path: Path) -> None:
    """They could put another pair in its place."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="writable for nobody else"):
        write_pair(tmp_path, None, b"private", b"public")
    assert list(tmp_path.iterdir()) == []


def _readable_for_group(path: Path, workspace: Path) -> Path:
    del workspace
    path.chmod(0o640)
    return path


def _readable_for_others(path: Path, workspace: Path) -> Path:
    del workspace
    path.chmod(0o604)
    return path


def _in_workspace(path: Path, workspace: Path) -> Path:
    path.rename(workspace / "key.pem")
    return workspace / "key.pem"


def _linked_into_workspace(path: Path, workspace: Path) -> Path:
    path.rename(workspace / "key.pem")
    path.symlink_to(workspace / "key.pem")
    return path


def _hard_linked_into_workspace(path: Path, workspace: Path) -> Path:
    os.link(path, workspace / "key.pem")
    return path


def _named_through_workspace(path: Path, workspace: Path) -> Path:
    (workspace / "link").symlink_to(path)
    return workspace / "link"


def _a_fifo(path: Path, workspace: Path) -> Path:
    del workspace
    path.unlink()
    os.mkfifo(path, 0o600)
    return path


def _a_directory(path: Path, workspace: Path) -> Path:
    del workspace
    return path.parent


def _absent(path: Path, workspace: Path) -> Path:
    del workspace
    path.unlink()
    return path


def _too_large(path: Path, workspace: Path) -> Path:
    del workspace
    path.write_bytes(path.read_bytes() + b"\n" * 64 * 1024)
    return path


SPOILED: Final = (
    _readable_for_group,
    _readable_for_others,
    _in_workspace,
    _linked_into_workspace,
    _hard_linked_into_workspace,
    _named_through_workspace,
    _a_fifo,
    _a_directory,
    _absent,
    _too_large,
)


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_key_in_a_bad_place_is_refused(
    tmp_path: Path, spoil: Callable[[Path, Path], Path]
) -> None:
    """Where an agent or another user could read it, or nothing that can be read."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    write_pair(tmp_path / "keys", workspace, generate_key("ed25519").pem, b"public")
    key = tmp_path / "keys" / "key.pem"
    assert read_private_key(key, workspace)
    with pytest.raises(ConfigurationError, match=r"^key "):
        read_private_key(spoil(key, workspace), workspace)


@needs("root")
def test_a_key_of_the_agents_user_is_refused(tmp_path: Path) -> None:
    """Root reads every file: that it can says nothing about who else does."""
    key = tmp_path / "key.pem"
    key.write_bytes(generate_key("ed25519").pem)
    key.chmod(0o600)
    os.chown(key, OVERFLOW, OVERFLOW)
    with pytest.raises(ConfigurationError, match=f"owner {OVERFLOW}"):
        read_private_key(key, None)


def test_a_mounted_secret_is_read_through_its_link(tmp_path: Path) -> None:
    """Kubernetes mounts a Secret as a link to a file in a dated directory."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "key.pem").write_bytes(b"secret")
    (tmp_path / "..data" / "key.pem").chmod(0o400)
    (tmp_path / "key.pem").symlink_to("..data/key.pem")
    assert read_private_key(tmp_path / "key.pem", None) == b"secret"


@pytest.mark.parametrize("kind", KINDS)
def test_openssh_keys_do_as_well(tmp_path: Path, kind: Kind) -> None:
    """What ssh-keygen writes signs, and its public line verifies."""
    options = ["-t", "ed25519"] if kind == "ed25519" else ["-t", "ecdsa", "-b", "256"]
    path = tmp_path / "id"
    try:
        make = ["ssh-keygen", "-q", "-N", "", *options, "-f", str(path)]
        subprocess.run(make, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("machine lacks: ssh-keygen")
    key = parse_private_key(path.read_bytes(), "id")
    public = parse_public_key(path.with_suffix(".pub").read_bytes(), "id.pub")
    assert (public.kind, public.keyid) == (kind, key.public.keyid)
    public.verify(key.sign(b"data"), b"data")
    with pytest.raises(BadSignatureError):
        public.verify(key.sign(b"data"), b"other")


def _other_keys() -> dict[str, bytes]:
    p384, good = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP256R1())
    pkcs8, plain = PrivateFormat.PKCS8, NoEncryption()
    secret = BestAvailableEncryption(b"secret")
    spki = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "another curve": p384.private_bytes(Encoding.PEM, pkcs8, plain),
        "rsa": rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, pkcs8, plain),
        "x25519": x25519.X25519PrivateKey.generate().private_bytes(Encoding.PEM, pkcs8, plain),
        "encrypted": good.private_bytes(Encoding.PEM, pkcs8, secret),
        "der": good.private_bytes(Encoding.DER, pkcs8, plain),
        "its public half": good.public_key().public_bytes(*spki),
        "another curve's public half": p384.public_key().public_bytes(*spki),
        "empty": b"",
        "text": b"sk-not-a-key\n",
        "cut": good.private_bytes(Encoding.PEM, pkcs8, plain)[:-40],
        "openssh of nothing": b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    }


def test_other_keys_are_refused_and_not_quoted() -> None:
    """Of a secret that is none of ours the message tells nothing."""
    for name, data in _other_keys().items():
        with pytest.raises(ConfigurationError) as refused:
            parse_private_key(data, name)
        assert str(refused.value).startswith(f"key {name}: expected an unencrypted ECDSA")
        assert "sk-not" not in str(refused.value)
        if name != "its public half":
            with pytest.raises(ConfigurationError):
                parse_public_key(data, name)


@needs("strace")
def test_the_process_is_undumpable_before_it_opens_the_key(tmp_path: Path) -> None:
    """Another process of the user cannot read a key from the runner's memory."""
    signed = make_signed(tmp_path)
    key, trace = signed.key("ecdsa-p256"), tmp_path / "trace"
    strace = ["strace", "-f", "-o", str(trace), "-e", "trace=prctl,openat,execve"]
    words = ["--key", str(key), "--out", str(tmp_path / "a.json"), *signed.job.arguments()]
    done = subprocess.run(
        [*strace, *ROOT_COMMAND, "attest", signed.attempt, *words],
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    before, undumpable, after = trace.read_text().partition("PR_SET_DUMPABLE, SUID_DUMP_DISABLE")
    assert undumpable
    # Afterwards a tracer that is not root reads no path any more: that the key was opened then
    # follows from its not having been opened before.
    assert not re.search(f'openat.*"{re.escape(str(key))}"', before)
    assert (before + after).count("execve(") == 1


def test_the_key_reaches_no_childs_environment(job: Job) -> None:
    """What the operator exported for the signing step is not passed to agent or scorer."""
    seen = job.directory / "seen"
    agent = job.agent(
        f"import os, pathlib\npathlib.Path({str(seen)!r}).write_text(repr(dict(os.environ)))\n"
        f"pathlib.Path('change.diff').write_text({job.diff.read_text()!r})\n"
    )
    secret = generate_key("ed25519").pem.decode()
    exported = {"ATTEMPT_SIGNING_KEY": secret, "KEY": secret}
    done = job.run("--base", str(job.base), "--agent", agent, environ=exported)
    assert done.returncode == 0, done.stderr
    assert "PRIVATE" not in seen.read_text()


COMMANDS: Final = {
    "keygen": ("--out", "keys"),
    "verify-attestation": (
        *("none.json", "--public-key", "none", "--diff", "none", "--prompt", "none"),
        *("--model", "m", "--attempt-id", "a"),
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_without_the_extra_a_command_names_it(tmp_path: Path, name: str) -> None:
    """One line that says what to install, and the help works all the same."""
    words = [sys.executable, "-c", WITHOUT_EXTRA, name]
    done = subprocess.run(
        [*words, *COMMANDS[name]], capture_output=True, check=False, cwd=tmp_path, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert "attempt-runner[sign]" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_all_else_works(job: Job) -> None:
    """The base install runs, gates, revokes and helps, and looks for no library of the extra."""
    base = [sys.executable, "-c", WITHOUT_EXTRA]
    for name in ("--help", "attest --help", "verify-attestation --help", "log --help"):
        done = subprocess.run([*base, *name.split()], capture_output=True, check=True, text=True)
        assert done.stdout.startswith("Usage:")
    scorer = ["--base", str(job.base), *job.attempt_flags(), "--", *job.scorer()]
    accepted = subprocess.run(
        [*base, "run", *job.arguments(), "--model", "m", *scorer],
        capture_output=True,
        check=True,
        text=True,
    )
    assert accepted.stdout == "accept\n"
    (attempt,) = job.attempts
    words = [*base, "revoke", attempt.name, *job.arguments(), "--reason", "why"]
    subprocess.run(words, check=True, capture_output=True)


def test_the_base_command_imports_nothing_of_the_extra() -> None:
    """Who does not sign pays nothing for signing."""
    listed = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-m", "attempt_runner", "gate", "--help"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "attempt_runner.gate" in listed.stderr
    assert not re.search(r"cryptography|securesystemslib|jsonschema", listed.stderr)
