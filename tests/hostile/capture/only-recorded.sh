# expect: empty
# An empty directory, a write bit and times: nothing that a patch or a scorer sees.
mkdir empty
chmod g+w code.py
touch -d 2099-01-01 notes.txt
