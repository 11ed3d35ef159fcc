# expect: patch
# Stash one change and make another: only what lies in the tree counts.
echo stashed > code.py
git stash -q
echo changed > notes.txt
