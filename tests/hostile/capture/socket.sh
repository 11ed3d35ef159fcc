# expect: coverage door
# A socket that somebody could have listened on.
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("door")'
