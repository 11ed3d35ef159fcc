# expect: patch
# Change nothing but the target of a link.
ln -sfn notes.txt link
