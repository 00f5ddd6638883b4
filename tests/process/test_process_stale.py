"""A process that was paused past its lease writes nothing more: its run belongs to another process."""

import sqlite3
import time

import pytest

from support.clocks import MovableClock, let_lease_run_out
from support.outside_log import OutsideLog
from support.seeds import seeded_random
from support.snapshots import read_snapshot
from support.waiting import wait_until

RESULT = ["first", "second", "third"]
STEPS = ["first#1", "second#1", "third#1"]
LEASE_SECONDS = 2
SHORT_LEASE = {"OUTLAST_LEASE": str(LEASE_SECONDS)}
"""For the process that is to lose its run. The others keep theirs however busy the machine is."""
LONG_LEASE = {"OUTLAST_LEASE": "600"}


@pytest.fixture(autouse=True)
def clock(tmp_path):
    """Return the clock of the programs."""
    clock = MovableClock(tmp_path)
    clock.set(0.0)
    return clock


def pause_at(spawn, tmp_path, place):
    """Return a program that is paused in the middle of its run, and the fence of the run."""
    program, log = spawn("stale.py", place, env=SHORT_LEASE), OutsideLog(tmp_path)
    when = "before" if place == "step" else "at the end"
    (line,) = program.wait_until(
        lambda: [line for line in log.of(program.pid) if line.when == when]
    )
    program.pause()
    return program, line.fence


def pause_past_its_lease_at(spawn, tmp_path, place):
    """Do the same, and move the clock until the program is taken for dead."""
    paused = pause_at(spawn, tmp_path, place)
    let_lease_run_out(f"sqlite:///{tmp_path}/outlast.db", MovableClock(tmp_path), LEASE_SECONDS)
    return paused


def resume_and_wait_until_it_knows(stale, tmp_path):
    """Resume a program, and wait until it knows that it was taken for dead: it registers again."""
    known = set(read_snapshot(tmp_path / "outlast.db").workers)
    (tmp_path / f"go-{stale.pid}").touch()
    stale.resume()
    stale.wait_until(lambda: set(read_snapshot(tmp_path / "outlast.db").workers) - known)


@pytest.mark.parametrize("place", ["step", "end"])
def test_process_paused_past_its_lease_writes_nothing_when_it_resumes(spawn, tmp_path, place):
    db, log = tmp_path / "outlast.db", OutsideLog(tmp_path)
    stale, fence = pause_past_its_lease_at(spawn, tmp_path, place)
    assert spawn("stale.py", env=LONG_LEASE).result() == RESULT
    before = read_snapshot(db)
    assert before.runs["r"]["status"] == "done"
    (tmp_path / f"go-{stale.pid}").touch()
    stale.resume()
    assert stale.result() == RESULT, "it gets the result of the other process"
    after = read_snapshot(db)
    assert after.journals == before.journals
    assert after.runs == before.runs
    kinds = [(entry["kind"], abs(entry["fence"]) == fence) for entry in after.journals["r"]]
    taken = kinds.index(("death", True))
    assert all(mine for _, mine in kinds[:taken])
    assert not any(mine for _, mine in kinds[taken + 1 :]), (
        "nothing under the old fence after the takeover"
    )
    assert [line.key for line in log.of(stale.pid) if line.key == "third#1"] == (
        ["third#1"] if place == "end" else []
    )


def test_process_that_lost_its_run_waits_for_the_result_of_the_new_owner(spawn, tmp_path):
    """Here the lease ends in real time, and the new owner itself notices that."""
    log = OutsideLog(tmp_path)
    stale, fence = pause_at(spawn, tmp_path, "step")
    successor = spawn("stale.py", "step", "end", env=LONG_LEASE)
    successor.wait_until(lambda: log.of(successor.pid))
    resume_and_wait_until_it_knows(stale, tmp_path)
    (tmp_path / f"go-{successor.pid}").touch()
    assert successor.result() == RESULT
    assert stale.result() == RESULT
    journal = read_snapshot(tmp_path / "outlast.db").journals["r"]
    taken = [entry["kind"] for entry in journal].index("death")
    assert not any(abs(entry["fence"]) == fence for entry in journal[taken + 1 :])
    assert sum(entry["kind"] == "death" for entry in journal) == 1
    assert [entry["key"] for entry in journal if entry["kind"] == "step"] == STEPS


@pytest.mark.parametrize("place", ["step", "end"])
def test_process_that_lost_its_run_takes_it_back_when_the_new_owner_dies(spawn, tmp_path, place):
    log = OutsideLog(tmp_path)
    stale, fence = pause_past_its_lease_at(spawn, tmp_path, place)
    successor = spawn("stale.py", "step", "end", env=LONG_LEASE)
    successor.wait_until(lambda: log.of(successor.pid))
    resume_and_wait_until_it_knows(stale, tmp_path)
    successor.kill()
    assert stale.result() == RESULT
    journal = read_snapshot(tmp_path / "outlast.db").journals["r"]
    assert [entry["kind"] for entry in journal].count("death") == 2
    assert fence in {abs(entry["fence"]) for entry in journal}


def test_process_paused_during_a_commit_makes_others_fail_with_a_clear_error(spawn, tmp_path):
    rng, db, log = (
        seeded_random("paused in a commit"),
        tmp_path / "outlast.db",
        OutsideLog(tmp_path),
    )
    busy = spawn("busy.py", env=LONG_LEASE)
    busy.wait_until(log.update)

    def is_paused_in_a_commit():
        busy.resume()
        time.sleep(rng.uniform(0, 0.02))  # a random moment
        busy.pause()
        return is_locked(db)

    wait_until(is_paused_in_a_commit, "it was never paused inside a commit")
    other = spawn("stale.py", env={"OUTLAST_STORE_PATIENCE": "1"})
    assert other.wait() == 1
    assert "StoreUnavailable" in other.errors.splitlines()[-1]
    assert "another program holds its lock" in other.errors
    lines = len(log.update())
    busy.resume()
    busy.wait_until(lambda: len(log.update()) > lines + 50)
    busy.kill()
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
