# expect: patch
# Latin-1, a newline, quotes, a backslash, blanks at both ends, escapes, an option, 255 bytes.
for name in "$(printf 'caf\351')" "$(printf 'a\nb')" '"quoted"' 'back\slash' ' blanks ' \
    "$(printf '\033[2Kaccept')" -rf '::error::' "$(printf 'tab\tname')" \
    "$(printf '%0255d' 0)"; do
    echo content > "./$name"
done
mkdir "$(printf 'dir\351\nx')" && mv notes.txt "$(printf 'dir\351\nx/notes ')"
