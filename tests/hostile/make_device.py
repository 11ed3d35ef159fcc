"""Make the disk's device node in the workspace: who can write that writes every file."""

import os
import stat

os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(7, 0))
