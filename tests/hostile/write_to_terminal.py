"""Print a false verdict on another terminal of the runner's user."""

import os

with open(os.environ["TERMINAL"], "wb", buffering=0) as terminal:
    terminal.write(b"\raccept\n")
