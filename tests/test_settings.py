"""Settings: every one has a flag, a key and a help text, and takes exactly its own values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from attempt_runner.resolve import CONVERTERS, frozen_model, resolve, split_command
from attempt_runner.settings import Job, flag_of, settings
from bootstrap.errors import UsageError

CWD: Final = Path("/somewhere")


def made(config: bool = False, **given: object) -> Job:  # noqa: FBT001, FBT002 - reads well here
    """Resolve a job from flags, or from a file below /etc."""
    if config:
        path = Path("/etc/jobs/job.toml")
        return resolve({"workspace": "ws"}, given, cwd=CWD, config_path=path, config_sha256="0")
    return resolve({"workspace": "ws", **given}, {}, cwd=CWD)


def test_every_setting_is_described() -> None:
    """Table, stage and help text: command line, file and reference are made from them."""
    for item in settings():
        assert item.metadata["table"] in ("job", "agent", "scorer")
        assert item.metadata["help"].endswith(".")
        assert "_" not in flag_of(item.name)
        assert item.type in CONVERTERS
        assert (item.type == "bool") is (not item.metadata["metavar"])


def test_a_flag_wins_over_a_key_and_a_key_over_a_default() -> None:
    """A value of None is not given, on either side."""
    job = resolve(
        {"workspace": "ws", "grace": 1.0, "wait": None},
        {"workspace": "other", "grace": 2.0, "wait": 3, "agent": None},
        cwd=CWD,
    )
    assert (job.workspace, job.grace, job.wait, job.agent) == (
        Path("/somewhere/ws"),
        1.0,
        3.0,
        None,
    )
    assert job.scorer_timeout == 3600.0


def test_relative_paths_are_those_of_who_wrote_them() -> None:
    """The caller's for a flag, the file's directory for a key; links are not looked at."""
    assert made(base="a/../b").base == Path("/somewhere/b")
    assert made(config=True, base="../base").base == Path("/etc/base")
    assert made(config=True, path_add=["/x", "y"]).path_add == (Path("/x"), Path("/etc/jobs/y"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("agent_exit_codes", "0,3", (0, 3)),
        ("agent_exit_codes", [0, 3], (0, 3)),
        ("agent_timeout", 5, 5.0),
        ("min_tests", 0, 0),
        ("model", "one", ("one",)),
        ("model", ["one", "two"], ("one", "two")),
        ("strict", True, True),
        ("scorer", ["a", "b c"], ("a", "b c")),
    ],
)
def test_a_value_of_its_kind_is_taken(name: str, value: object, expected: object) -> None:
    """Lists may be one word; whole seconds are seconds."""
    assert getattr(made(config=True, **{name: value}), name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agent_exit_codes", ""),
        ("agent_exit_codes", "256"),
        ("agent_exit_codes", "-1"),
        ("agent_exit_codes", "1_0"),
        ("agent_exit_codes", " 1"),
        ("agent_exit_codes", "\u0661"),
        ("agent_exit_codes", [0.5]),
        ("agent_exit_codes", [True]),
        ("agent_exit_codes", []),
        ("agent_timeout", -1),
        ("agent_timeout", float("nan")),
        ("agent_timeout", float("inf")),
        ("agent_timeout", 10**400),
        ("agent_timeout", True),
        ("agent_timeout", "5"),
        ("min_tests", 1.0),
        ("min_tests", True),
        ("agent", ""),
        ("agent", "a\0b"),
        ("agent", ["a"]),
        ("base", ""),
        ("base", "a\0b"),
        ("base", 5),
        ("strict", "true"),
        ("strict", 1),
        ("model", [""]),
        ("model", [5]),
        ("model", {"a": 1}),
        ("path_add", [""]),
        ("scorer", 5),
    ],
)
def test_a_value_of_another_kind_is_bad_usage(name: str, value: object) -> None:
    """Exact types, finite numbers, no empty text: named by its flag, whoever gave it."""
    for config in (False, True):
        with pytest.raises(UsageError) as caught:
            made(config=config, **{name: value})
        assert caught.value.what == flag_of(name)


def test_a_required_setting_is_asked_for() -> None:
    """Only the workspace has no default."""
    with pytest.raises(UsageError, match="--workspace"):
        resolve({}, {}, cwd=CWD)


@pytest.mark.parametrize(
    ("models", "environ", "expected"),
    [
        ((), {"MODEL_ID": "env"}, ("env",)),
        (("flag",), {"MODEL_ID": "env"}, ("flag",)),
        (("a", "b"), {}, ("a", "b")),
    ],
)
def test_the_model_is_the_flags_or_else_the_environments(
    models: tuple[str, ...], environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    """In the order in which they are to be tried."""
    assert frozen_model(made(model=models or None), environ) == expected


BAD_IDS: Final[list[Any]] = ["", "a b", "-a", "a\n", "m\u043edel", "a\u202e", "a\x00", "x" * 257]


@pytest.mark.parametrize("model", BAD_IDS)
def test_a_malformed_model_id_is_bad_usage(model: str) -> None:
    """Visible ASCII, no space, no leading dash, 256 characters: from flag or environment."""
    with pytest.raises(UsageError):
        frozen_model(made(), {"MODEL_ID": model})
    with pytest.raises(UsageError):
        frozen_model(made(model=[model]), {})


def test_a_command_string_is_split_once() -> None:
    """As a shell splits words, without a shell's expansions."""
    assert split_command("agent", "a 'b c' \"$HOME\" {x}") == ("a", "b c", "$HOME", "{x}")
    for bad in ("'open", "   "):
        with pytest.raises(UsageError, match="agent"):
            split_command("agent", bad)
