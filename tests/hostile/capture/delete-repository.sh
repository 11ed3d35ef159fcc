# expect: patch
# Without a repository there is nothing to compare with.
rm -rf .git
echo changed > code.py
