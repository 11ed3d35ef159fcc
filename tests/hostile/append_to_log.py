"""Append a record to the job log."""

import sys

with open(f"{sys.argv[2]}/job-log.jsonl", "ab") as log:
    log.write(b"{}\n")
