"""Several processes share one SQLite file: each run has one owner, and another process takes over its runs."""

import os
import time
from collections import Counter

from test_process_kills import UNDISTURBED, assert_no_recorded_step_was_repeated

from support.outside_log import OutsideLog
from support.seeds import seeded_random
from support.snapshots import read_dead_store, read_snapshot
from support.waiting import wait_until

SIZE = 4
RUNS = 10
ROUNDS = 4 if "OUTLAST_TEST_KILLS" in os.environ else 1


def start_crowd(spawn, tmp_path, *args):
    programs = [spawn("crowd.py", *args) for _ in range(SIZE)]
    for program in programs:
        program.wait_for_message("ready")
    (tmp_path / "go").touch()
    return programs


def test_processes_that_write_one_file_get_no_lock_errors(spawn, tmp_path):
    programs = start_crowd(spawn, tmp_path, "own", RUNS)
    assert [program.result() for program in programs] == [{"runs": RUNS, "trouble": []}] * SIZE
    after = read_snapshot(tmp_path / "outlast.db")
    assert len(after.runs) == RUNS * SIZE
    assert {run["status"] for run in after.runs.values()} == {"done"}


def test_one_of_several_processes_that_start_the_same_id_executes_it(spawn, tmp_path):
    (tmp_path / "release").touch()
    programs = start_crowd(spawn, tmp_path, "same")
    expected = [0, 2, 4, 6, 8, "held", 0, 2, 4, 6, 8]
    assert [program.result() for program in programs] == [
        {"result": expected, "trouble": []}
    ] * SIZE
    lines = OutsideLog(tmp_path).update()
    assert len(lines) == len({line.key for line in lines}) == 11, "each step is executed once"
    assert len({line.pid for line in lines}) == 1
    assert "death" not in read_snapshot(tmp_path / "outlast.db").kinds("same")


def test_another_process_takes_over_each_time_the_owner_is_killed(spawn, tmp_path):
    """The lease is ten minutes, so the takeover cannot be due to its end."""
    programs, log = start_crowd(spawn, tmp_path, "same"), OutsideLog(tmp_path)
    dead = []
    for _ in range(SIZE - 1):

        def owners():
            return [
                line.pid for line in log.update() if line.key == "hold#1" and line.pid not in dead
            ]

        (pid,) = wait_until(owners)
        (owner,) = [program for program in programs if program.pid == pid]
        owner.kill()
        dead.append(pid)
    wait_until(owners)
    (tmp_path / "release").touch()
    (survivor,) = [program for program in programs if program.pid not in dead]
    end = survivor.result()
    assert (end["result"][5], end["trouble"]) == ("held", [])
    notes = sorted(line.key for line in log.update() if line.key != "hold#1")
    assert notes == sorted(f"note#{n}" for n in range(1, 11)), "no recorded step is repeated"
    assert read_snapshot(tmp_path / "outlast.db").kinds("same").count("death") == len(dead)


def test_processes_killed_at_random_finish_their_common_run(spawn, tmp_path):
    rng, log = seeded_random("one run, killed at random"), OutsideLog(tmp_path)
    kills = 0
    for number in range(ROUNDS):
        id = f"r{number}"
        programs = [spawn("agent.py", id) for _ in range(3)]
        for _ in range(4):
            lines = len(log.update()) + rng.randint(0, 8)
            wait_until(
                lambda: len(log.update()) >= lines or all(program.has_ended for program in programs)
            )
            time.sleep(rng.uniform(0, 0.02))  # a random moment to kill
            victim = rng.choice(programs)
            if not victim.has_ended:
                victim.kill()
                kills += 1
                programs[programs.index(victim)] = spawn("agent.py", id)
        assert [program.result() for program in programs] == [UNDISTURBED] * 3
    after = read_dead_store(tmp_path / "outlast.db")
    assert {run["status"] for run in after.runs.values()} == {"done"}
    assert_no_recorded_step_was_repeated(after, log.update())
    starts = Counter(
        (line.run, line.key, line.attempt) for line in log.lines if line.when == "before"
    )
    for (run, key, attempt), times in starts.items():
        assert times <= 1 + after.runs[run]["deaths"], f"{key} of {run}, attempt {attempt}"
    print(
        f"{kills} kills, {len(after.deaths())} deaths, {starts.total() - len(starts)} steps repeated"
    )
