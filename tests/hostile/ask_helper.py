"""Have a server outside write the log: tmux, or whatever else listens on a path."""

import os
import socket

with socket.socket(socket.AF_UNIX) as helper:
    helper.connect(os.environ["HELPER"])
    if helper.recv(1) != b"k":
        raise OSError("the helper did nothing")
