# expect: patch
# Tell the index to look away.
echo changed > code.py
git update-index --skip-worktree code.py
