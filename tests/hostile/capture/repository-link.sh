# expect: patch
# The repository becomes a link to a place outside.
rm -rf .git && ln -s / .git
echo changed > code.py
