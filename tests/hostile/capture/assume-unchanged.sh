# expect: patch
# Tell the index that nothing changes, and set the file's times back.
echo CODE > code.py
touch -r notes.txt code.py
git update-index --assume-unchanged code.py
