# expect: patch
# Fifty thousand files.
python3 -c '
import os
for number in range(50000):
    if number % 500 == 0:
        os.mkdir(f"m{number}"); directory = number
    with open(f"m{directory}/{number}", "w") as file:
        file.write(str(number))
'
