"""The environment of agent and scorer: an allow-list, and what may never be passed on."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Final

from bootstrap.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

INHERITED: Final = ("LANG", "TZ", "TERM")

# Each of these makes some program load code, or a file of commands, before its own first line.
LOADS_CODE: Final = (
    "BASHOPTS",
    "BASH_ENV",
    "BASH_FUNC_*",
    "CLASSPATH",
    "DYLD_*",
    "ENV",
    "GCONV_PATH",
    "GIT_*",
    "GLIBC_TUNABLES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_*",
    "LUA_INIT*",
    "NODE_*",
    "NPM_CONFIG_*",
    "PERL*",
    "PROMPT_COMMAND",
    "PS4",
    "PYTEST_*",
    "PYTHON*",
    "RUBY*",
    "SHELLOPTS",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
)
# Files that a CI runner executes or publishes after the job: writing one is running a command.
CI_COMMAND_FILES: Final = (
    "BUILDKITE_ENV_FILE",
    "GITHUB_ENV",
    "GITHUB_OUTPUT",
    "GITHUB_PATH",
    "GITHUB_STATE",
    "GITHUB_STEP_SUMMARY",
)
# Tokens, ids and addresses of whatever started the runner: a child could act in its name.
SCHEDULERS: Final = (
    "ACTIONS_*",
    "ARGO_*",
    "AWS_BATCH_*",
    "BUILDKITE*",
    "CI_*",
    "GITHUB_*",
    "GITLAB_*",
    "JENKINS_*",
    "KUBERNETES_*",
    "RUNNER_*",
    "SBATCH_*",
    "SLURM*",
)
OURS: Final = (
    "ATTEMPT_*",
    "DIFF_FILE",
    "DIFF_SHA256",
    "HOME",
    "MODEL_ID",
    "PATH",
    "PROMPT_FILE",
    "PROMPT_SHA256",
    "SCORE_*",
    "TMPDIR",
    "TREE_DIR",
    "WORKSPACE_GEN",
)


def check_passed(flag: str, names: Iterable[str]) -> None:
    """Refuse a variable that loads code, is a CI system's or scheduler's, or is set by us.

    Raises ConfigurationError. Names are compared without regard to case.
    """
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise _refused(flag, name, "not a variable's name")
        for patterns, cause in (
            (LOADS_CODE, "a variable that makes programs load code"),
            (CI_COMMAND_FILES, "a command file of the CI system"),
            (SCHEDULERS, "a variable of the scheduler or CI system"),
            (OURS, "a variable that the runner sets itself"),
        ):
            if any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in patterns):
                raise _refused(flag, name, cause)


def _refused(flag: str, name: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        f"--{flag} {shown(name)}",
        expected="a variable that carries data",
        found=cause,
        remedy="pass the value by a file in the child's HOME instead",
    )


def child_environment(
    environ: Mapping[str, str],
    passed: Iterable[str],
    *,
    path: str,
    home: Path,
    tmp: Path,
) -> dict[str, str]:
    """Return the whole environment of a child before the words that its role adds.

    `passed` has been through `check_passed`; a name that is not set is left out.
    """
    kept = {name: environ[name] for name in (*INHERITED, *passed) if name in environ}
    return {**kept, "PATH": path, "HOME": str(home), "TMPDIR": str(tmp)}
