# expect: patch
# Hide the change behind a commit: `git diff HEAD` shows nothing.
echo changed > code.py
git add -A && git commit -qm hidden
