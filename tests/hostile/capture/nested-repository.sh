# expect: coverage nested/.git/HEAD
# Hide files in a repository inside the workspace: git shows one line for all of it.
git init -q nested
echo payload > nested/payload.py
git -C nested add -A && git -C nested commit -qm payload
