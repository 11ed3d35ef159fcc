# expect: coverage sparse
# Two gigabytes of nothing: more than git should hold.
truncate -s 2G sparse
