# expect: empty
# No change at all.
true
