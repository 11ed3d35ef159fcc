"""Leave a file in shared memory for a later job's process to trust."""

import os

with open(os.environ["SHARED_MEMORY"], "w", encoding="ascii") as file:
    file.write("poison")
