"""Fork while Outlast is open: the parent is unharmed, and no child passes for it."""

import os
import time

import pytest
from process_tools import Log, autopsy, look, until


def test_children_that_exit_leave_the_parent_unharmed(spawn, tmp_path):
    codes, results, after = spawn("forks.py", "exits").result()
    assert codes == [7] * 25
    assert results == [150] * 4
    assert after == 3
    left = autopsy(tmp_path / "outlast.db")
    assert left.deaths() == []
    assert left.workers == {}
    assert {run["status"] for run in left.runs.values()} == {"done"}


def test_a_child_can_open_the_store_anew_while_the_parent_writes(spawn, tmp_path):
    codes, results = spawn("forks.py", "uses").result()
    assert codes == [0] * 3
    assert results == [100] * 3
    left = autopsy(tmp_path / "outlast.db")
    assert left.deaths() == []
    steps = {id: left.kinds(id).count("step") for id in left.runs}
    assert steps == {"r0": 100, "r1": 100, "r2": 100, "nesting": 3, "child-5": 5, "child-6": 6, "child-7": 7}


@pytest.mark.parametrize("how", ["outlives", "outlives as a program"])
def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_parents_worker_alive(
    spawn, tmp_path, reap, how
):
    log = Log(tmp_path)
    parent = spawn("forks.py", how)
    (left,) = until(lambda: [line.pid for line in log.update() if line.when == "left behind"])
    reap.append(left)
    (tmp_path / "release").touch()
    parent.kill()
    killed = time.monotonic()
    heir = spawn("forks.py", how)
    until(lambda: log.of(heir.pid))
    seconds = time.monotonic() - killed
    assert heir.result() == "went on"
    os.kill(left, 0)  # the child is alive all the while
    print(f"{how}: the heir, started at the kill, went on after {seconds:.3f} s")
    assert seconds < 15.0, "the lease is 30 s"
    assert len(look(tmp_path / "outlast.db").deaths()) == 1
