"""Move to a sibling cgroup, out of reach of a kill of its own."""

import os

with open(f"{os.environ['SIBLING_CGROUP']}/cgroup.procs", "w", encoding="ascii") as members:
    members.write("0")
