"""Makes the store unavailable: `locker.py FOLDER SECONDS` holds it locked against every writer for so long."""

import json
import sqlite3
import sys
import time

folder, seconds = sys.argv[1:]
db = sqlite3.connect(f"{folder}/outlast.db", timeout=30, isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print(json.dumps("locked"), flush=True)
time.sleep(float(seconds))
db.execute("ROLLBACK")
print(json.dumps("unlocked"), flush=True)
