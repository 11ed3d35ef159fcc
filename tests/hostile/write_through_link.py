"""Write the receipt through a symbolic link in the workspace."""

import os
import sys

os.symlink(f"{sys.argv[2]}/receipt.json", "innocent.json")
with open("innocent.json", "w", encoding="ascii") as receipt:
    receipt.write("[]")
