"""Writes a file over and over: `file_loop.py FOLDER PATH FIRST`. It says each number after its write has returned."""

import json
import sys
from itertools import count

from outlast.effects import file

_, path, first = sys.argv[1:]
for number in count(int(first)):
    body = f"{number} " * 20_000
    file.write(path, f"{body}end".encode(), key=f"key-{number}", fence=1)
    print(json.dumps(number), flush=True)
