# expect: coverage git~1/config
# The short name of `.git` on another filesystem.
mkdir git~1 && echo '[core]' > git~1/config
