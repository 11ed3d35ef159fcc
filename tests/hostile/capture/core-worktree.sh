# expect: patch
# Point the repository at another work tree.
mkdir elsewhere && cp code.py elsewhere/
git config core.worktree "$PWD/elsewhere"
echo changed > code.py
