"""Put another generation in place of the one in force."""

import os
import sys

with open("planted", "w", encoding="ascii") as planted:
    planted.write("{}")
os.replace("planted", f"{sys.argv[2]}/generation.json")
