# expect: patch
# Every hook there is, in the place of hooks and in one of our own.
for hook in post-index-change pre-commit post-checkout pre-applypatch applypatch-msg; do
    printf '#!/bin/sh\ntouch "%s"\n' "$CANARY" > .git/hooks/$hook
    chmod +x .git/hooks/$hook
done
git config core.hooksPath .git/hooks
echo changed > code.py
