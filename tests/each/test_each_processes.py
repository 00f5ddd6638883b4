"""Real processes and SIGKILL, SIGTERM, SIGSTOP: no done item is lost or repeated, only items in progress are."""

import os
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "process")]

from process_tools import Program

from support.clocks import MovableClock, let_lease_run_out
from support.outside_log import OutsideLog
from support.seeds import seeded_random
from support.waiting import wait_until

KILLS = max(4, int(os.environ.get("OUTLAST_TEST_KILLS", "20")) // 5)
ITEMS = 150
LEASE_SECONDS = 600.0
AT_ONCE = {"each": 1, "sync": 1, "map": 8}


@pytest.fixture
def spawn(tmp_path):
    started = []

    def start(*args, **env):
        patient = {"OUTLAST_MAX_ATTEMPTS": "1000"}  # kills in a row are chance here
        started.append(
            Program(str(HERE / "programs" / "batch.py"), tmp_path, *args, env=patient | env)
        )
        return started[-1]

    yield start
    for program in started:
        program.kill()


def done(folder):
    """Return the keys that are done, as they are in the file."""
    if not (folder / "outlast.db").exists():
        return []
    with closing(sqlite3.connect(f"file:{folder}/outlast.db?mode=ro", uri=True, timeout=100)) as db:
        try:
            return [
                key
                for (key,) in db.execute("SELECT key FROM entries WHERE kind = 'done' ORDER BY seq")
            ]
        except sqlite3.OperationalError:  # it died before it had created the tables
            return []


@pytest.mark.timeout(600 + KILLS * 10)
@pytest.mark.parametrize("form", ["each", "map", "sync"])
def test_killed_program_continues_and_repeats_only_items_in_progress(spawn, tmp_path, form):
    rng, log = seeded_random(f"each {form}"), OutsideLog(tmp_path)
    kills = 0
    while True:
        program = spawn(form, 0, ITEMS)
        before = set(done(tmp_path))
        if kills < KILLS:
            begun = len(log.of(program.pid))
            upto = begun + rng.randrange(1, 2 * ITEMS // KILLS)
            wait_until(lambda: program.has_ended or len(log.of(program.pid)) >= upto)
        if kills == KILLS or program.has_ended:
            result = program.result()
            break
        program.kill()
        kills += 1
        redone = {line.key for line in log.of(program.pid)} & before
        assert not redone, "a done item is not begun again"
    keys = done(tmp_path)
    assert len(keys) == len(set(keys)) == ITEMS
    begun = Counter(line.key for line in log.update() if line.when == "begin")
    assert set(begun) == {str(number) for number in range(ITEMS)}
    assert sum(begun.values()) - ITEMS <= kills * AT_ONCE[form], (
        "only items in progress are repeated"
    )
    if form == "map":
        assert result == {str(number): number * number for number in range(ITEMS)}
    assert kills > 0


@pytest.mark.parametrize("form", ["each", "map"])
def test_two_processes_do_every_item_once(spawn, tmp_path, form):
    (tmp_path / "go").touch()
    first = spawn(form, 0, 100, 0.005)
    wait_until(lambda: len(done(tmp_path)) > 3)
    second = spawn(form, 50, 150, 0.005)
    first.result()
    second.result()
    begun = Counter(line.key for line in OutsideLog(tmp_path).update() if line.when == "begin")
    assert set(begun) == {str(number) for number in range(150)}
    assert max(begun.values()) == 1


def test_waiting_process_takes_over_when_the_other_is_killed(spawn, tmp_path):
    first = spawn("each", 0, 100, 0.02)
    wait_until(lambda: len(done(tmp_path)) > 3)
    second = spawn("each", 0, 100, 0.001)
    second.wait_until(lambda: "is held by worker" in second.errors)
    first.kill()
    (tmp_path / "go").touch()
    second.result()
    begun = Counter(line.key for line in OutsideLog(tmp_path).update() if line.when == "begin")
    assert sum(begun.values()) <= 101


@pytest.mark.parametrize("form", ["each", "map", "sync"])
def test_sigterm_lets_items_in_progress_end(spawn, tmp_path, form):
    first = spawn(form, 0, 100, 0.02)
    wait_until(lambda: len(done(tmp_path)) > 3)
    first.terminate()
    assert first.wait() in (75, 143, -signal.SIGTERM)
    assert 3 < len(done(tmp_path)) < 100
    (tmp_path / "go").touch()
    spawn(form, 0, 100, 0.001).result()
    begun = Counter(line.key for line in OutsideLog(tmp_path).update() if line.when == "begin")
    assert (len(begun), max(begun.values())) == (100, 1)


def stop_outside_a_commit(program, folder) -> None:
    """Pause a program while it does not hold SQLite's lock, which would keep every other process out."""
    while True:
        program.pause()
        other = sqlite3.connect(folder / "outlast.db", isolation_level=None, timeout=0.2)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            program.resume()
        else:
            return
        finally:
            other.close()


@pytest.mark.parametrize("form", ["each", pytest.param("map", marks=pytest.mark.extended)])
def test_process_that_was_taken_for_dead_records_nothing_more(spawn, tmp_path, form):
    first = spawn(form, 0, 100, 0.02, OUTLAST_LEASE=str(LEASE_SECONDS))
    wait_until(lambda: len(done(tmp_path)) > 3)
    stop_outside_a_commit(first, tmp_path)
    address = f"sqlite:///{tmp_path}/outlast.db"
    let_lease_run_out(address, MovableClock(tmp_path), LEASE_SECONDS)
    (tmp_path / "go").touch()
    second = spawn(form, 0, 100, 0.001)
    second.result()
    lines = len(OutsideLog(tmp_path).of(first.pid))
    first.resume()
    assert first.wait() == 1
    assert "LeaseLost" in first.errors
    assert len(OutsideLog(tmp_path).of(first.pid)) - lines <= 2 * AT_ONCE[form], (
        "it begins no more items"
    )
    keys = done(tmp_path)
    assert len(keys) == len(set(keys)) == 100
