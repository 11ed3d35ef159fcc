"""The allow-list of a child's environment, and what may never be passed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from attempt_runner.environment import check_passed, child_environment
from bootstrap.errors import ConfigurationError


def test_only_named_variables_are_kept() -> None:
    """Language, zone and terminal type, what is passed, and three of our own."""
    environ = {"LANG": "C", "TZ": "UTC", "TERM": "x", "KEY": "k", "OTHER": "o", "HOME": "/root"}
    made = child_environment(
        environ, ["KEY", "NOT_SET"], path="/bin", home=Path("/h"), tmp=Path("/t")
    )
    assert made == {
        "LANG": "C",
        "TZ": "UTC",
        "TERM": "x",
        "KEY": "k",
        "PATH": "/bin",
        "HOME": "/h",
        "TMPDIR": "/t",
    }


def test_nothing_passed_can_stand_in_for_ours() -> None:
    """PATH, HOME and TMPDIR are set last, whatever comes before."""
    environ = {"PATH": "/evil", "HOME": "/evil", "TMPDIR": "/evil"}
    made = child_environment(environ, environ, path="/bin", home=Path("/h"), tmp=Path("/t"))
    assert made == {"PATH": "/bin", "HOME": "/h", "TMPDIR": "/t"}


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES"),
        *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTEST_ADDOPTS", "PYTEST_PLUGINS"),
        *("NODE_OPTIONS", "NODE_PATH", "npm_config_script_shell", "PERL5LIB", "RUBYOPT"),
        *("BASH_ENV", "ENV", "SHELLOPTS", "PROMPT_COMMAND", "IFS", "BASH_FUNC_ls%%", "ZDOTDIR"),
        *("GIT_CONFIG_COUNT", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "JAVA_TOOL_OPTIONS"),
        *("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_STATE"),
        *("PATH", "HOME", "TMPDIR", "MODEL_ID", "WORKSPACE_GEN", "ATTEMPT_ID", "SCORE_FILE"),
        *("ATTEMPT_STATE_DIR", "ATTEMPT_RUNNER_MARK", "PROMPT_FILE", "TREE_DIR", "DIFF_SHA256"),
        *("ld_preload", "Git_Dir", "", "A=B", "A\0B"),
    ],
)
def test_a_variable_that_loads_code_or_is_ours_is_refused(name: str) -> None:
    """In any case of letters: some programs do not distinguish them."""
    with pytest.raises(ConfigurationError, match="agent-pass-env"):
        check_passed("agent-pass-env", ["FINE", name])


def test_a_variable_that_carries_data_is_passed() -> None:
    """Keys of providers, proxies, locales: what an agent really needs."""
    check_passed(
        "agent-pass-env", ["ANTHROPIC_API_KEY", "HTTPS_PROXY", "LC_ALL", "NO_COLOR", "A.B"]
    )
