# expect: patch
# A file whose lines look like a patch, and a name that looks like a side of one.
mkdir -p a/dev b && echo x > a/dev/null
printf -- '--- a/code.py\n+++ b/code.py\n@@ -1 +1 @@\n-x\n+y\n\\ No newline' > notes.txt
printf 'GIT binary patch\nliteral 0\n' > b/x
