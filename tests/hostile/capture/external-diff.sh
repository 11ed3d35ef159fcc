# expect: patch
# A program that any `git diff` starts.
git config diff.external "touch $CANARY"
git config diff.evil.command "touch $CANARY"
git config core.pager "touch $CANARY"
echo '* diff=evil' > .gitattributes
echo changed > code.py
