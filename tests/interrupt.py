"""Run the real command, and have it signal itself right before a step of its own.

    python -I tests/interrupt.py SIGNAL EVENT NAME COUNT WORD...

The step is the COUNTth audit event EVENT of which NAME is an argument's last component; of
`open` only what opens for writing counts. Nothing of the command is replaced.
"""

from __future__ import annotations

import os
import signal
import sys

from attempt_runner.__main__ import main

_, number, wanted, name, count, *words = sys.argv
left = int(count)


def signal_at_step(event: str, arguments: tuple[object, ...]) -> None:
    """Count the events that match, and send the signal at the last."""
    global left  # noqa: PLW0603 - an audit hook has no other place to count
    if event != wanted or name not in map(last_component, arguments):
        return
    if event == "open" and not int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR):
        return
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.Signals[number])


def last_component(argument: object) -> str | None:
    """Return the last component of what may be a path."""
    return os.fsdecode(argument).rpartition("/")[2] if isinstance(argument, str | bytes) else None


if __name__ == "__main__":
    sys.argv[1:] = words
    sys.addaudithook(signal_at_step)
    main()
