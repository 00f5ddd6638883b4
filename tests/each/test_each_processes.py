"""Real processes: kill -9 in the middle, two at once, SIGTERM. Nothing done is lost, and only what was under way is redone."""

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

from process_tools import Log, Program, chance, until

KILLS = max(4, int(os.environ.get("OUTLAST_TEST_KILLS", "20")) // 5)
ITEMS = 300
AT_ONCE = {"each": 1, "sync": 1, "map": 8}


@pytest.fixture
def spawn(tmp_path):
    started = []

    def start(*args, **env):
        patient = {
            "OUTLAST_MAX_ATTEMPTS": "1000"
        }  # kills in a row, before anything is recorded, are chance here
        started.append(Program(str(HERE / "programs" / "batch.py"), tmp_path, *args, env=patient | env))
        return started[-1]

    yield start
    for program in started:
        program.kill()


def done(folder):
    """The keys that are done, as they stand in the file."""
    if not (folder / "outlast.db").exists():
        return []
    with closing(sqlite3.connect(f"file:{folder}/outlast.db?mode=ro", uri=True, timeout=10)) as db:
        try:
            return [key for (key,) in db.execute("SELECT key FROM entries WHERE kind = 'done' ORDER BY seq")]
        except sqlite3.OperationalError:  # it died before it had made the tables
            return []


@pytest.mark.timeout(120 + KILLS * 5)
@pytest.mark.parametrize("form", ["each", "map", "sync"])
def test_killed_at_any_moment_it_goes_on_and_repeats_only_what_was_under_way(spawn, tmp_path, form):
    rng, log = chance(f"each {form}"), Log(tmp_path)
    kills = 0
    while True:
        program = spawn(form, 0, ITEMS)
        before = set(done(tmp_path))
        if kills < KILLS:
            begun = len(log.of(program.pid))
            upto = begun + rng.randrange(1, 2 * ITEMS // KILLS)
            until(lambda: program.ended or len(log.of(program.pid)) >= upto)
        if kills == KILLS or program.ended:
            result = program.result()
            break
        program.kill()
        kills += 1
        redone = {line.key for line in log.of(program.pid)} & before
        assert not redone, "what was done is not begun again"
    keys = done(tmp_path)
    assert len(keys) == len(set(keys)) == ITEMS
    begun = Counter(line.key for line in log.update() if line.when == "begin")
    assert set(begun) == {str(number) for number in range(ITEMS)}
    assert sum(begun.values()) - ITEMS <= kills * AT_ONCE[form], "only what was under way is redone"
    if form == "map":
        assert result == {str(number): number * number for number in range(ITEMS)}
    assert kills > 0


@pytest.mark.parametrize("form", ["each", "map"])
def test_two_processes_at_once_do_every_item_once(spawn, tmp_path, form):
    first = spawn(form, 0, 100, 0.005)
    until(lambda: len(done(tmp_path)) > 3)
    second = spawn(form, 50, 150, 0.005)
    first.result()
    second.result()
    begun = Counter(line.key for line in Log(tmp_path).update() if line.when == "begin")
    assert set(begun) == {str(number) for number in range(150)}
    assert max(begun.values()) == 1


def test_the_one_that_waits_takes_over_when_the_other_is_killed(spawn, tmp_path):
    first = spawn("each", 0, 100, 0.02)
    until(lambda: len(done(tmp_path)) > 3)
    second = spawn("each", 0, 100, 0.001)
    until(lambda: len(done(tmp_path)) > 20)
    first.kill()
    second.result()
    begun = Counter(line.key for line in Log(tmp_path).update() if line.when == "begin")
    assert sum(begun.values()) <= 101


@pytest.mark.parametrize("form", ["each", "map", "sync"])
def test_a_signal_lets_what_is_under_way_end_and_nothing_is_done_twice(spawn, tmp_path, form):
    first = spawn(form, 0, 100, 0.02)
    until(lambda: len(done(tmp_path)) > 3)
    first.signal(signal.SIGTERM)
    assert first.wait() in (75, 143, -signal.SIGTERM)
    before = len(done(tmp_path))
    assert 3 < before < 100
    spawn(form, 0, 100, 0.001).result()
    begun = Counter(line.key for line in Log(tmp_path).update() if line.when == "begin")
    assert (len(begun), max(begun.values())) == (100, 1)


def stop_outside_a_commit(program, folder) -> None:
    """One that is stopped with SQLite's lock in its hands keeps everybody out: that is another matter."""
    while True:
        program.stop()
        other = sqlite3.connect(folder / "outlast.db", isolation_level=None, timeout=0.2)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        except sqlite3.OperationalError:
            program.signal(signal.SIGCONT)
        else:
            return
        finally:
            other.close()


@pytest.mark.parametrize("form", ["each", "map"])
def test_one_that_was_taken_for_dead_and_wakes_records_nothing_more(spawn, tmp_path, form):
    first = spawn(form, 0, 100, 0.02, OUTLAST_LEASE="1")
    until(lambda: len(done(tmp_path)) > 3)
    stop_outside_a_commit(first, tmp_path)
    second = spawn(form, 0, 100, 0.001, OUTLAST_LEASE="1")
    second.result()
    lines = len(Log(tmp_path).of(first.pid))
    first.signal(signal.SIGCONT)
    assert first.wait() == 1
    assert "LeaseLost" in first.errors()
    assert len(Log(tmp_path).of(first.pid)) - lines <= 2 * AT_ONCE[form], "it begins nothing more"
    keys = done(tmp_path)
    assert len(keys) == len(set(keys)) == 100
