"""Two apps on one file in one process: SQLite's locks on it are the process's, and must outlive either."""

import subprocess
import sys

import pytest
from process_tools import autopsy, until

LOOK = """
import sys
from outlast.store.sqlite.store import SQLiteStore
store = SQLiteStore(sys.argv[1])
store.open()
store.run("r")
store.close()
"""


@pytest.mark.parametrize("second", ["closed", "open"])
def test_what_one_of_two_apps_acknowledged_is_there_after_another_process_looked_and_a_kill(
    spawn, tmp_path, second
):
    db = tmp_path / "outlast.db"
    program = spawn("two_apps.py", second)
    until(lambda: program.said() or program.ended)
    subprocess.run([sys.executable, "-c", LOOK, db], check=True, timeout=30)
    (tmp_path / f"go-{program.pid}").touch()
    until(lambda: len(program.said()) == 2 or program.ended)
    assert program.said() == ["ready", 190], program.errors()
    program.kill()
    image = autopsy(db)
    assert {id: row["status"] for id, row in image.runs.items()} == {"r": "done"}
    assert image.kinds("r") == ["step"] * 20
