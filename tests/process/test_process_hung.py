"""A step that still executes when its app has closed: the run is its process's until that is gone."""

import time

import pytest
from process_tools import Log, look, until

LEASE_SECONDS = 1.5


@pytest.mark.parametrize("kind", ["thread", "swallow"])
def test_a_run_whose_step_executes_beyond_the_close_is_kept_until_its_process_is_gone(spawn, tmp_path, kind):
    db, log = tmp_path / "outlast.db", Log(tmp_path)
    first = spawn("hung.py", kind, "close")
    until(lambda: first.said() or first.ended)
    assert first.said() == ["StoreUnavailable"], f"who waited is told; {first.errors()}"
    closed = time.time()
    row = look(db).runs["r"]
    assert row["status"] == "running"
    heir = spawn("hung.py", kind, "stay")
    (tmp_path / f"go-{heir.pid}").touch()
    until(lambda: time.time() > closed + 1.5 * LEASE_SECONDS or log.of(heir.pid))
    assert log.of(heir.pid) == [], "nobody else executes it meanwhile"
    image = look(db)
    assert image.runs["r"]["worker"] == row["worker"]
    assert image.workers[row["worker"]]["lease_until"] > closed + LEASE_SECONDS, "its lease is renewed"
    first.kill()
    assert heir.result() == 1
