# expect: patch
# CRLF, CR alone, a byte order mark, no final newline.
printf 'one\r\ntwo\r\n' > notes.txt
printf '\357\273\277one\rtwo\rthree' > code.py
