# expect: coverage pipe
# A FIFO where a reader would wait for ever.
mkfifo pipe
