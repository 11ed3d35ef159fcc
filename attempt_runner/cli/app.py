"""The command table, and the one place where an error becomes an exit status."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from attempt_runner.cli.output import OutputLostError, complain, silence, write_result
from bootstrap import __version__
from bootstrap.errors import IntegrityError, RefusalError, RunnerError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bootstrap.signals import SignalInbox

# Each is a module of this package, imported only when its command is asked for.
COMMANDS: Final = (
    "run",
    "bootstrap",
    "attempt",
    "gate",
    "log",
    "show",
    "explain",
    "lab",
    "doctor",
    "confined",
    "score",
    "keygen",
    "attest",
    "verify-attestation",
    "revoke",
    "collect",
    "prune",
    "report",
    "init",
    "check",
)
BUG: Final = 70  # sysexits.h, EX_SOFTWARE
EPILOG: Final = (
    "Exit status: 0 accept; 1 reject, final; 2 bad usage; 70 our own bug; 75 could not start, "
    "or interrupted before any verdict; 77 integrity refusal: hold the machine; 78 "
    "configuration refused. Only 75 may be tried again."
)


class _CommandTable(TyperGroup):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of the help text."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Build one command, or return None for an unknown name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"attempt_runner.cli.{cmd_name.replace('-', '_')}")
        single = typer.Typer(
            rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
        )
        single.command(cmd_name, epilog=EPILOG)(module.command)
        return typer.main.get_command(single)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        write_result(f"attempt-runner {__version__}\n")
        raise typer.Exit


def _about(
    version: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Run an agent's attempt so that no earlier attempt's score can count for it."""
    del version


def run_command_line(arguments: Sequence[str], inbox: SignalInbox) -> int:
    """Run one command and return the exit status of section 7 of the contract.

    Every error of ours is one line on standard error; a refusal's names are the first line
    of standard output. An exception that nobody expected is a bug: 70.
    """
    app = typer.Typer(
        cls=_CommandTable,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=False,  # nothing asked is bad usage, told in one line
        epilog=EPILOG,
    )
    app.callback()(_about)
    command = typer.main.get_command(app)
    try:
        status = command.main(
            args=list(arguments), prog_name="attempt-runner", standalone_mode=False, obj=inbox
        )
    except Exception as error:  # noqa: BLE001 - the last line: every error gets its status here
        return _status_of(error)
    return status if isinstance(status, int) else 0


def _status_of(error: Exception) -> int:
    if isinstance(error, RefusalError):
        return _report_refusal(error)
    if isinstance(error, RunnerError):
        complain(str(error))
        return error.status
    if isinstance(error, OutputLostError):
        silence(sys.stdout)
        complain(str(error))
        return error.status
    if hasattr(error, "exit_code") and hasattr(error, "format_message"):
        return _report_usage(error)
    if isinstance(error, OSError):
        return _report_failure(error)
    return _report_bug(error)


def _report_refusal(refusal: RefusalError) -> int:
    for finding in refusal.findings:
        complain(f"{finding.field}: expected {shown(finding.expected)}, got {shown(finding.found)}")
    try:
        write_result(f"reject: {','.join(refusal.fields)}\n")
    except OutputLostError as error:
        silence(sys.stdout)
        complain(str(error))
    return refusal.status


def _report_usage(error: Any) -> int:
    message = shown(error.format_message().rstrip("."), 1000)
    if context := getattr(error, "ctx", None):
        message += f"; see {context.command_path} --help"
    complain(message)
    return int(error.exit_code)


def _report_failure(error: OSError) -> int:
    """Report a failure of the system's that no module foresaw: nothing was decided by it."""
    complain(f"{_place_of(error)}: expected it to work, got {shown(error)}; hold the machine")
    return IntegrityError.status


def _report_bug(error: Exception) -> int:
    complain(
        f"bug: {type(error).__name__} in {_place_of(error)}: {shown(error)}; "
        "please report it with the command line"
    )
    return BUG


def _place_of(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}, line {last.lineno} of {shown(last.filename)}"
