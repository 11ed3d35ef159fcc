# expect: patch
# Add a file that no commit knows.
mkdir -p new/deep && echo new > new/deep/file.py
