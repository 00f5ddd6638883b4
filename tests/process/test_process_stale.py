"""A process that was stopped past its lease writes nothing more: its run belongs to another."""

import signal
import sqlite3
import time

import pytest
from process_tools import Log, chance, look, until

RESULT = ["first", "second", "third"]


def stop_at(spawn, tmp_path, place):
    """A program, stopped in the middle of its run, and its fence."""
    program, log = spawn("stale.py", place), Log(tmp_path)
    when = "before" if place == "step" else "at the end"
    (line,) = until(lambda: [line for line in log.of(program.pid) if line.when == when])
    program.stop()
    return program, line.fence


def wake_and_know(stale, tmp_path):
    """Wake it, and wait until it knows that it was taken for dead: it enlists anew."""
    known = set(look(tmp_path / "outlast.db").workers)
    (tmp_path / f"go-{stale.pid}").touch()
    stale.signal(signal.SIGCONT)
    until(lambda: set(look(tmp_path / "outlast.db").workers) - known)


@pytest.mark.parametrize("place", ["step", "end"])
def test_a_process_stopped_past_its_lease_writes_nothing_when_it_wakes(spawn, tmp_path, place):
    db, log = tmp_path / "outlast.db", Log(tmp_path)
    stale, fence = stop_at(spawn, tmp_path, place)
    began = time.monotonic()
    heir = spawn("stale.py")
    assert heir.result() == RESULT
    print(f"the heir ended {time.monotonic() - began:.2f} s after it was started; the lease is 2 s")
    before = look(db)
    assert before.runs["r"]["status"] == "done"
    (tmp_path / f"go-{stale.pid}").touch()
    stale.signal(signal.SIGCONT)
    assert stale.result() == RESULT, "it gets the heir's result"
    after = look(db)
    assert after.journals == before.journals, "the journal is unchanged"
    assert after.runs == before.runs
    kinds = [(entry["kind"], abs(entry["fence"]) == fence) for entry in after.journals["r"]]
    taken = kinds.index(("death", True))
    assert all(mine for _, mine in kinds[:taken])
    assert not any(mine for _, mine in kinds[taken + 1 :]), "nothing under the old fence after the claim"
    assert [line.key for line in log.of(stale.pid) if line.key == "third#1"] == (
        ["third#1"] if place == "end" else []
    )


@pytest.mark.parametrize("place", ["step", "end"])
def test_a_process_that_wakes_while_its_heir_executes_waits_for_the_heirs_result(spawn, tmp_path, place):
    log = Log(tmp_path)
    stale, fence = stop_at(spawn, tmp_path, place)
    heir = spawn("stale.py", "step", "end")
    until(lambda: log.of(heir.pid))
    wake_and_know(stale, tmp_path)
    (tmp_path / f"go-{heir.pid}").touch()
    assert heir.result() == RESULT
    assert stale.result() == RESULT
    journal = look(tmp_path / "outlast.db").journals["r"]
    taken = [entry["kind"] for entry in journal].index("death")
    assert not any(abs(entry["fence"]) == fence for entry in journal[taken + 1 :])
    assert sum(entry["kind"] == "death" for entry in journal) == 1
    assert [entry["key"] for entry in journal if entry["kind"] == "step"] == [
        "first#1",
        "second#1",
        "third#1",
    ]


@pytest.mark.parametrize("place", ["step", "end"])
def test_a_process_that_lost_its_run_takes_it_back_when_the_heir_dies(spawn, tmp_path, place):
    log = Log(tmp_path)
    stale, fence = stop_at(spawn, tmp_path, place)
    heir = spawn("stale.py", "step", "end")
    until(lambda: log.of(heir.pid))
    wake_and_know(stale, tmp_path)
    heir.kill()
    killed = time.monotonic()
    assert stale.result(30) == RESULT
    print(f"{place}: it ended {time.monotonic() - killed:.2f} s after its heir was killed")
    journal = look(tmp_path / "outlast.db").journals["r"]
    assert [entry["kind"] for entry in journal].count("death") == 2
    fences = {abs(entry["fence"]) for entry in journal}
    assert fence in fences


def test_a_process_stopped_in_the_middle_of_a_commit_holds_up_the_others_with_a_clear_error(spawn, tmp_path):
    rng, db, log = chance("stopped in a commit"), tmp_path / "outlast.db", Log(tmp_path)
    busy = spawn("busy.py")
    until(log.update)
    for _ in range(200):
        time.sleep(rng.uniform(0, 0.02))  # the moment itself
        busy.stop()
        if is_locked(db):
            break
        busy.signal(signal.SIGCONT)
    else:
        pytest.fail("it was never stopped inside of a commit")
    began = time.monotonic()
    other = spawn("stale.py", env={"OUTLAST_STORE_PATIENCE": "1"})
    assert other.wait() == 1
    print(f"the other gave up after {time.monotonic() - began:.2f} s")
    assert "StoreUnavailable" in other.errors().splitlines()[-1]
    assert "another program holds its lock" in other.errors()
    lines = len(log.update())
    busy.signal(signal.SIGCONT)
    until(lambda: len(log.update()) > lines + 50)
    assert spawn("stale.py").result() == RESULT


def is_locked(db):
    connection = sqlite3.connect(db, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False
