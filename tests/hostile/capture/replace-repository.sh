# expect: patch
# A fresh repository knows no earlier state.
rm -rf .git
echo changed > code.py
git init -q . && git add -A && git commit -qm fresh
