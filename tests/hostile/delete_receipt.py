"""Delete the receipt."""

import os
import sys

os.unlink(f"{sys.argv[2]}/receipt.json")
