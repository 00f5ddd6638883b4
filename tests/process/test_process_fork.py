"""A program forks while Outlast is open: the parent goes on, and no child keeps the parent's worker alive."""

import pytest

from support.outside_log import OutsideLog
from support.processes import is_running
from support.snapshots import read_dead_store, read_snapshot


def test_forked_children_that_exit_leave_the_parent_unharmed(spawn, tmp_path):
    codes, results, after = spawn("forks.py", "exits").result()
    assert codes == [7] * 10
    assert results == [50] * 4
    assert after == 3
    left = read_dead_store(tmp_path / "outlast.db")
    assert left.deaths() == []
    assert left.workers == {}
    assert {run["status"] for run in left.runs.values()} == {"done"}


def test_forked_child_can_open_the_store_while_the_parent_writes(spawn, tmp_path):
    codes, results = spawn("forks.py", "uses").result()
    assert codes == [0] * 3
    assert results == [30] * 3
    left = read_dead_store(tmp_path / "outlast.db")
    assert left.deaths() == []
    steps = {id: left.kinds(id).count("step") for id in left.runs}
    assert steps == {
        "r0": 30,
        "r1": 30,
        "r2": 30,
        "nesting": 3,
        "child-5": 5,
        "child-6": 6,
        "child-7": 7,
    }


@pytest.mark.parametrize("how", ["outlives", "outlives as a program"])
def test_child_that_outlives_its_parent_does_not_keep_the_worker_alive(
    spawn, tmp_path, orphans, how
):
    """The lease is ten minutes, so the takeover cannot be due to its end."""
    log = OutsideLog(tmp_path)
    parent = spawn("forks.py", how)
    (child,) = parent.wait_until(
        lambda: [line.pid for line in log.update() if line.when == "left behind"]
    )
    orphans.append(child)
    (tmp_path / "release").touch()
    parent.kill()
    assert spawn("forks.py", how).result() == "went on"
    assert is_running(child)
    assert len(read_snapshot(tmp_path / "outlast.db").deaths()) == 1
