"""Forbid the runner to write files: its next record would fail."""

import resource
import sys

runner = int(sys.argv[3])
_, hard = resource.prlimit(runner, resource.RLIMIT_FSIZE)
resource.prlimit(runner, resource.RLIMIT_FSIZE, (0, hard))
