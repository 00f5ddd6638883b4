"""A step outlives the close of its app: the run belongs to its process until that process ends."""

import pytest

from support.outside_log import OutsideLog
from support.snapshots import read_snapshot


@pytest.mark.parametrize("kind", ["thread", "swallow"])
def test_run_whose_step_outlives_the_close_is_kept_until_its_process_ends(spawn, tmp_path, kind):
    db, log = tmp_path / "outlast.db", OutsideLog(tmp_path)
    first = spawn("hung.py", kind, "close")
    assert first.wait_for_message() == "StoreUnavailable", first.describe()
    closed = read_snapshot(db)
    row = closed.runs["r"]
    assert row["status"] == "running"
    other = spawn("hung.py", kind, "stay")
    (tmp_path / f"go-{other.pid}").touch()
    other.wait_until(lambda: len(read_snapshot(db).workers) == 2, pause=0.05)
    lease_until = read_snapshot(db).workers[row["worker"]]["lease_until"]

    def is_renewed():
        return read_snapshot(db).workers[row["worker"]]["lease_until"] > lease_until

    first.wait_until(is_renewed, pause=0.1)
    assert log.of(other.pid) == [], "no other process executes it meanwhile"
    assert read_snapshot(db).runs["r"]["worker"] == row["worker"]
    first.kill()
    assert other.result() == 1
