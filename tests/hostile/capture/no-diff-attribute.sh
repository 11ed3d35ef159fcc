# expect: patch
# Mark every file as one without a diff.
echo '* -diff binary export-ignore' > .gitattributes
cp .gitattributes .git/info/attributes
echo changed > code.py
