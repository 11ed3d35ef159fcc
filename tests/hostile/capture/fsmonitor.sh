# expect: patch
# A program that any `git status` starts.
git config core.fsmonitor "touch $CANARY; :"
echo changed > code.py
