# expect: coverage code.py
# A file becomes a FIFO.
rm code.py && mkfifo code.py
