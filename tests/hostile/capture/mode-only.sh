# expect: patch
# Change nothing but the execute bit, where git is told not to look.
git config core.fileMode false
chmod +x code.py
chmod -x run.sh
