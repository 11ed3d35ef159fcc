"""Read the receipt, the log and the generation."""

import sys

for name in ("receipt.json", "job-log.jsonl", "generation.json"):
    with open(f"{sys.argv[2]}/{name}", "rb") as file:
        file.read()
