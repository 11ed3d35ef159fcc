"""Open the state to everybody."""

import os
import sys

os.chmod(f"{sys.argv[2]}/receipt.json", 0o666)  # noqa: S103 - the attack
