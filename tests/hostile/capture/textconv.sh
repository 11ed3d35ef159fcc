# expect: patch
# A program that turns both sides into the same text.
git config diff.evil.textconv "touch $CANARY; echo same"
git config diff.evil.binary false
echo '* diff=evil' > .gitattributes
printf '\000changed' > data.bin
