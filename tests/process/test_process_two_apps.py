"""Two apps of one process open the same file: SQLite's locks belong to the process and must outlive either app."""

import sys

import pytest

from support.processes import Program
from support.snapshots import read_dead_store

READ = """
import sys
from outlast.store.sqlite.store import SQLiteStore
store = SQLiteStore(sys.argv[1])
store.open()
store.run("r")
store.close()
"""


@pytest.mark.parametrize("second", ["closed", "open"])
def test_results_survive_a_read_by_another_process_and_sigkill(spawn, tmp_path, second):
    db = tmp_path / "outlast.db"
    program = spawn("two_apps.py", second)
    program.wait_for_message("ready")
    with Program([sys.executable, "-c", READ, db], tmp_path / "reader") as reader:
        assert reader.wait() == 0, reader.describe()
    (tmp_path / f"go-{program.pid}").touch()
    program.wait_for_message(190)
    program.kill()
    image = read_dead_store(db)
    assert {id: row["status"] for id, row in image.runs.items()} == {"r": "done"}
    assert image.kinds("r") == ["step"] * 20
