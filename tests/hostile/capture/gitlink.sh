# expect: coverage module/.git
# A submodule whose repository is a file that points elsewhere.
mkdir module && echo 'gitdir: ../.git' > module/.git
echo payload > module/payload.py
