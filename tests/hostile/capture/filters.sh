# expect: patch
# Plant filter programs, conversions and a keyword that git would expand.
for kind in clean smudge process; do git config filter.evil.$kind "touch $CANARY"; done
git config core.autocrlf true
echo '* filter=evil ident text eol=crlf working-tree-encoding=UTF-16' > .gitattributes
cp .gitattributes .git/info/attributes
printf '$Id$\nline\r\n' > code.py
