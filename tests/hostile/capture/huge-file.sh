# expect: coverage huge
# A hundred gigabytes of nothing: reading them would take minutes.
truncate -s 100G huge 2>/dev/null || truncate -s 1G huge
