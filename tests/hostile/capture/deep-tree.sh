# expect: coverage deep
# More levels than a manifest goes down.
python3 -c '
import os
os.mkdir("deep"); os.chdir("deep")
for _ in range(300):
    os.mkdir("d"); os.chdir("d")
'
