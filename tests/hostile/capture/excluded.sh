# expect: patch
# Exclude new files in every way that git has.
echo '*' >> .git/info/exclude
echo 'hidden*' > .gitignore
git config core.excludesFile "$PWD/.gitignore"
echo new > hidden.py
