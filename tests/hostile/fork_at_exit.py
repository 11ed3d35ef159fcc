"""Fork a hundred processes that each fork once more when they are told to end."""

import os
import signal
import time


def fork_again(*_: object) -> None:
    """Leave one more behind, deaf to the same request."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    os._exit(0)


for _ in range(100):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, fork_again)
        os.setsid()
        time.sleep(60)
        os._exit(0)
