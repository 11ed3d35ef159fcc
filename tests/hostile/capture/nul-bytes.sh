# expect: patch
# NUL bytes, and a text that becomes one with them.
printf 'a\000b\000' > data.bin
printf 'text\000text\n' > code.py
