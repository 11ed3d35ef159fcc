# expect: coverage run.sh
# A program that runs as its owner.
chmod u+s run.sh
