# expect: patch
# Change nothing but the letter case of a name.
git config core.ignoreCase true
mv code.py CODE.py
