"""Truncate a file that the runner has open, through its descriptor table."""

import os
import sys

table = f"/proc/{sys.argv[3]}/fd"
for name in os.listdir(table):
    if os.readlink(f"{table}/{name}").endswith("job-log.jsonl"):
        os.truncate(f"{table}/{name}", 0)
        sys.exit(0)
raise FileNotFoundError(table)
