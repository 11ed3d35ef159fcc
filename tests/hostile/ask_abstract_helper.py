"""Have a server outside write the log that listens on an abstract address."""

import os
import socket

with socket.socket(socket.AF_UNIX) as helper:
    helper.connect("\0" + os.environ["ABSTRACT_HELPER"])
    if helper.recv(1) != b"k":
        raise OSError("the helper did nothing")
