# expect: coverage nested/.GiT/config
# The same with another letter case: a repository on some systems.
mkdir -p nested/.GiT && echo '[core]' > nested/.GiT/config
