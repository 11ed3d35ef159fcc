"""Every setting there is, as one frozen Job.

A setting's name is the flag's and the key's (with dashes), its type says what values it
takes, and its metadata hold the rest: the table of job.toml where it stands, the stage that
reads it, and the help text. Command line, configuration file and reference are all made from
these fields; `resolve` fills them.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

Table = Literal["job", "agent", "scorer"]
# start: bootstrap reads it; attempt: the attempt does; run: what lies beyond one attempt
Stage = Literal["both", "start", "attempt", "run"]


def _about(table: Table, text: str, *, stage: Stage = "both", metavar: str = "") -> dict[str, str]:
    return {"table": table, "stage": stage, "help": text, "metavar": metavar}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as the operator asked for it. Paths are absolute; nothing here came from an agent."""

    workspace: Path = field(
        metadata=_about("job", "Directory that the agent may write.", metavar="DIR")
    )
    model: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Model id to freeze; the default is $MODEL_ID at this moment. Repeated: the models to "
            "try in order, where --failover-on allows it.",
            stage="start",
            metavar="ID",
        ),
    )
    failover_on: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "What moves on to the next --model: scorer-unavailable (exit 75 and no score; implied "
            "by several models unless the format's tool runs the patch), scorer-timeout, agent. "
            "Repeatable; a verdict never does.",
            stage="run",
            metavar="CAUSE",
        ),
    )
    max_attempts: int = field(
        default=0,
        metadata=_about(
            "job", "Attempts that one job may make; 0 means one a model.", stage="run", metavar="N"
        ),
    )
    prompt: Path | None = field(
        default=None,
        metadata=_about(
            "job", "Prompt file, sealed before an agent could edit it.", metavar="FILE"
        ),
    )
    diff: Path | None = field(
        default=None,
        metadata=_about("job", "Diff file that the agent's work leaves.", metavar="FILE"),
    )
    capture: bool = field(
        default=False,
        metadata=_about(
            "job",
            "Make the diff from the workspace itself instead of reading --diff.",
            stage="both",
        ),
    )
    base: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Trusted starting point, a directory or a repository's commit: {tree} is it with the "
            "sealed diff applied, and with --capture the workspace must equal it at the start.",
            metavar="DIR|REPO@COMMIT",
        ),
    )
    restore: bool = field(
        default=False,
        metadata=_about(
            "job",
            "Put a workspace that differs from --base back to it, instead of refusing (77).",
            stage="start",
        ),
    )
    exclude: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Glob of paths that are not captured, such as **/__pycache__/**. Repeatable.",
            stage="start",
            metavar="GLOB",
        ),
    )
    max_files: int = field(
        default=1_000_000,
        metadata=_about("job", "Paths that a captured workspace may hold.", metavar="N"),
    )
    max_bytes: int = field(
        default=64 << 30,
        metadata=_about("job", "Bytes that a captured workspace may hold.", metavar="BYTES"),
    )
    max_change: int = field(
        default=1 << 30,
        metadata=_about(
            "job",
            "Bytes that a diff, or the changed files of a capture, may hold.",
            metavar="BYTES",
        ),
    )
    protect: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Glob of paths whose change is rejected, such as tests/**. Repeatable.",
            stage="attempt",
            metavar="GLOB",
        ),
    )
    restore_protected: bool = field(
        default=False,
        metadata=_about(
            "job",
            "Score protected paths as the baseline has them, instead of rejecting a change.",
            stage="attempt",
        ),
    )
    score_path: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Workspace path where a score could be planted: wiped before the agent and again "
            "before the scorer. Repeatable.",
            stage="start",
            metavar="PATH",
        ),
    )
    score_mount: bool = field(
        default=False,
        metadata=_about(
            "job", "Empty in place a score path that is itself a mount.", stage="start"
        ),
    )
    state_dir: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Private state directory that no agent can write; the default is $ATTEMPT_STATE_DIR, "
            "/var/lib/attempt-runner for root, else $XDG_STATE_HOME/attempt-runner.",
            metavar="DIR",
        ),
    )
    scratch_dir: Path | None = field(
        default=None,
        metadata=_about(
            "job",
            "Where the exchange directories of agent and scorer are made; the default is $TMPDIR.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    wait: float = field(
        default=0.0,
        metadata=_about("job", "Seconds to wait for the workspace lock.", metavar="SECONDS"),
    )
    strict: bool = field(
        default=False,
        metadata=_about(
            "job",
            "Refuse (77) when an earlier run's processes cannot be proved gone.",
            stage="start",
        ),
    )
    isolation: str = field(
        default="auto",
        metadata=_about(
            "job",
            "Isolation tier of agent and scorer; none is tamper-evident only.",
            stage="attempt",
            metavar="TIER",
        ),
    )
    allow_write: tuple[Path, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Path that agent and scorer may write, too. Repeatable.",
            stage="attempt",
            metavar="PATH",
        ),
    )
    allow_device: tuple[Path, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Device that agent and scorer may use, such as a GPU. Repeatable.",
            stage="attempt",
            metavar="PATH",
        ),
    )
    allow_socket: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Control socket that may be in the children's reach. Repeatable.",
            stage="attempt",
            metavar="PATH",
        ),
    )
    user_pool: str | None = field(
        default=None,
        metadata=_about(
            "job",
            "Users A-B of which agent and scorer get a free one each (root only).",
            stage="attempt",
            metavar="A-B",
        ),
    )
    require: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Demand evidence of the attempt, such as scored=tree. Repeatable.",
            stage="attempt",
            metavar="NAME[=VALUE]",
        ),
    )
    path_add: tuple[Path, ...] = field(
        default=(),
        metadata=_about(
            "job",
            "Directory put before the fixed PATH of agent and scorer. Repeatable.",
            metavar="DIR",
        ),
    )
    grace: float = field(
        default=10.0,
        metadata=_about(
            "job",
            "Seconds between TERM and KILL for a child.",
            metavar="SECONDS",
        ),
    )
    agent: str | None = field(
        default=None,
        metadata=_about(
            "agent",
            "Agent command, split once as a shell splits words; no shell is started. Knows "
            "{workspace} {prompt} {model}.",
            stage="attempt",
            metavar="COMMAND",
        ),
    )
    agent_timeout: float = field(
        default=3600.0,
        metadata=_about(
            "agent",
            "Seconds that the agent may run.",
            stage="attempt",
            metavar="SECONDS",
        ),
    )
    agent_exit_codes: tuple[int, ...] = field(
        default=(0,),
        metadata=_about(
            "agent",
            "Exit codes of the agent that count as done, separated by commas.",
            stage="attempt",
            metavar="CODES",
        ),
    )
    agent_user: str | None = field(
        default=None,
        metadata=_about(
            "agent",
            "User that the agent runs as (root only): a name or number.",
            stage="attempt",
            metavar="USER",
        ),
    )
    agent_network: str = field(
        default="on",
        metadata=_about(
            "agent",
            "Whether the agent has the network: on or off.",
            stage="attempt",
            metavar="on|off",
        ),
    )
    agent_pass_env: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "agent",
            "Variable passed on to the agent. Repeatable.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    agent_home_from: Path | None = field(
        default=None,
        metadata=_about(
            "agent",
            "Directory copied into the agent's fresh HOME.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    scorer: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Scorer command: the words after --, or a list of words. Knows {prompt} {diff} {score} "
            "{model} {generation} {attempt} {tree} {workspace}.",
            metavar="COMMAND",
        ),
    )
    score_format: str = field(
        default="score-json",
        metadata=_about(
            "scorer",
            "Format of the score that the scorer writes.",
            stage="attempt",
            metavar="FORMAT",
        ),
    )
    score_file: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Path of a file that the scorer leaves in its score directory, which is then {score}. "
            "Repeatable: all must parse and pass.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    threshold: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Demand on a numeric score, such as accuracy>=0.8. Repeatable.",
            stage="attempt",
            metavar="METRIC>=N",
        ),
    )
    min_tests: int = field(
        default=1,
        metadata=_about(
            "scorer", "Tests that must have run for a pass.", stage="attempt", metavar="N"
        ),
    )
    model_alias: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Name under which a provider serves the frozen model. Repeatable.",
            stage="attempt",
            metavar="SERVED=FROZEN",
        ),
    )
    require_served_model: bool = field(
        default=False,
        metadata=_about(
            "scorer", "Reject a score that does not name the model served.", stage="attempt"
        ),
    )
    served_model_optional: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "With several models, accept a score that does not name the model served.",
            stage="run",
        ),
    )
    scorer_timeout: float = field(
        default=3600.0,
        metadata=_about(
            "scorer",
            "Seconds that the scorer may run.",
            stage="attempt",
            metavar="SECONDS",
        ),
    )
    scorer_user: str | None = field(
        default=None,
        metadata=_about(
            "scorer",
            "User that the scorer runs as (root only): a name or number.",
            stage="attempt",
            metavar="USER",
        ),
    )
    scorer_network: str = field(
        default="on",
        metadata=_about(
            "scorer",
            "Whether the scorer has the network: on or off.",
            stage="attempt",
            metavar="on|off",
        ),
    )
    scorer_pass_env: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "scorer",
            "Variable passed on to the scorer. Repeatable.",
            stage="attempt",
            metavar="NAME",
        ),
    )
    scorer_home_from: Path | None = field(
        default=None,
        metadata=_about(
            "scorer",
            "Directory copied into the scorer's fresh HOME.",
            stage="attempt",
            metavar="DIR",
        ),
    )
    scorer_reads_workspace: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "Let {workspace} in the scorer name the live workspace, which was not hashed.",
            stage="attempt",
        ),
    )
    scorer_may_be_unavailable: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "A scorer that exits 75 without a score means: start again (75), not reject.",
            stage="attempt",
        ),
    )
    tree_writable: bool = field(
        default=False,
        metadata=_about(
            "scorer",
            "Let the scorer write {tree}, which is thrown away.",
            stage="attempt",
        ),
    )
    # The job.toml that was read, if any: no settings of their own.
    config_path: Path | None = None
    config_sha256: str | None = None


def settings(*stages: Stage) -> tuple[Field[Any], ...]:
    """Return the fields of Job that are settings, of the given stages or of all."""
    known = (item for item in fields(Job) if item.metadata)
    return tuple(item for item in known if not stages or item.metadata["stage"] in stages)


def flag_of(name: str) -> str:
    """Return the dashed name that a setting has on the command line and in job.toml."""
    return name.replace("_", "-")
