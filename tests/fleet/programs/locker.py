"""Lock the store against every writer until the file `unlock` exists: `locker.py FOLDER`."""

import json
import sqlite3
import sys
import time
from pathlib import Path

folder = sys.argv[1]
db = sqlite3.connect(f"{folder}/outlast.db", timeout=100, isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print(json.dumps("locked"), flush=True)
while not Path(folder, "unlock").exists():
    time.sleep(0.005)
db.execute("ROLLBACK")
print(json.dumps("unlocked"), flush=True)
