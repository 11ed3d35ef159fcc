"""The console script: take over signals before anything that takes time to import."""

from __future__ import annotations

import sys

from bootstrap.signals import SignalInbox


def main() -> None:
    """Run the command line and exit with its status."""
    inbox = SignalInbox()
    inbox.install()
    from attempt_runner.cli.app import run_command_line  # noqa: PLC0415 - handlers come first

    sys.exit(run_command_line(sys.argv[1:], inbox))


if __name__ == "__main__":
    main()
