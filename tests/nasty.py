"""Feed nasty strings to every command, in one process; print what was wrong as JSON.

    python -I tests/nasty.py WORKSPACE STATE ATTEMPT COUNT

The commands are the real ones, called as the command line calls them; only the two streams
are caught.
"""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from typing import TYPE_CHECKING, Final

from attempt_runner.cli.app import run_command_line
from bootstrap.signals import SignalInbox

if TYPE_CHECKING:
    from collections.abc import Iterator

BREAKS: Final = ("\n", "\r", "\r\n", "\v", "\f", "\x1b[2K\r", "\x1b[1A", "\x85", "\u2028", "\u2029")
PAYLOADS: Final = (
    "::error::owned",
    "##vso[task.complete]",
    "accept",
    "reject: verdict",
    "attempt-runner: accepted",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202eevil",
    "\udcff\udcfe",
    "\U0001f600",
    "%0aaccept",
    "\\naccept",
    "{prompt}{tree}",
    "../../etc/passwd",
    "-rf",
    "--help=x",
    "' \" ` $(id)",
    "\t\b\b\b",
    "a" * 5000,
    "\u0430ccept",
)
NASTY: Final = [f"x{start}{payload}" for start, payload in product(BREAKS, PAYLOADS)]
STARTS: Final = ("::", "##vso", "accept", "reject: verdict", "evil", "%0a", "owned")


def every_command(workspace: str, state: str, attempt: str, text: str) -> Iterator[list[str]]:
    """Yield command lines with a text in every place where one can come from outside."""
    where = ["--workspace", workspace, "--state-dir", state]
    for command in ("gate", "show", "explain"):
        yield [command, text, *where]
        yield [command, attempt, "--workspace", text, "--state-dir", state]
    yield ["gate", attempt, *where, "--require", text]
    yield ["gate", attempt, *where, "--diff", text]
    yield ["gate", attempt, *where, "--emit", f"{text}/file"]
    for command in ("log", "doctor", "lab", "keygen", "check", "init", "report"):
        yield [command, text]
    yield ["log", "--workspace", text, "--state-dir", state]
    yield ["log", "--ledger", text]
    yield ["revoke", text, *where, "--reason", "why"]
    yield ["attest", text, *where, "--key", text]
    yield ["verify-attestation", text, "--public-key", text]
    yield ["score", text]
    yield ["score", "--format", text, text]
    yield ["prune", *where, "--older-than", text]
    yield ["prune", *where, "--keep", text]
    yield ["confined", text]
    yield ["collect", text]
    yield [text]
    yield [f"--{text}"]
    run = ["run", *where, "--prompt", "/dev/null", "--diff", "/dev/null", "--isolation", "none"]
    for flag in ("--model", "--score-path", "--config", "--agent", "--base", "--score-format"):
        yield [*run, "--model", "m", flag, text, "--", "/bin/true"]
    yield [*run, "--model", "m", "--", text]
    yield ["bootstrap", *where, "--model", text]
    yield ["attempt", *where, "--prompt", text, "--diff", text, "--", "/bin/true"]


def complaint(out: str, err: str) -> str:
    """Return what is wrong with an output, or nothing."""
    for stream in (out, err):
        if not re.fullmatch("[ -~\n]*", stream):
            return "not printable ASCII"
        if any(line.startswith(STARTS) for line in stream.split("\n")):
            return "a line begins with data"
    if not all(line.startswith("attempt-runner: ") for line in err.splitlines()):
        return "standard error is not ours"
    return "a bug" if "bug:" in err else ""


def main() -> None:
    """Run every command line; print how many, and the complaints."""
    workspace, state, attempt, count = sys.argv[1:]
    inbox, tried, complaints = SignalInbox(), 0, []
    for number, text in enumerate(NASTY):
        for place, words in enumerate(every_command(workspace, state, attempt, text)):
            # A share of all pairs: each text in some places, each place with some texts.
            if (number + place) % len(NASTY) >= int(count):
                continue
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                run_command_line(words, inbox)
            tried += 1
            if wrong := complaint(out.getvalue(), err.getvalue()):
                complaints.append([wrong, words, out.getvalue()[-500:], err.getvalue()[-500:]])
    json.dump({"tried": tried, "complaints": complaints[:20]}, sys.stdout)


if __name__ == "__main__":
    main()
