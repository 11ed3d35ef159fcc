"""An agent that does its work: it mends the bug and leaves a diff. Runs in the workspace."""

import difflib
from pathlib import Path

FILE = Path("intervals/__init__.py")

before = FILE.read_text()
after = before.replace("low < merged[-1][1]", "low <= merged[-1][1]")
FILE.write_text(after)
diff = difflib.unified_diff(
    before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{FILE}", f"b/{FILE}"
)
Path("change.diff").write_text("".join(diff))
print("mended", FILE)
