"""Move the receipt away."""

import os
import sys

os.rename(f"{sys.argv[2]}/receipt.json", f"{sys.argv[2]}/old.json")
