"""Several processes on one file: fair turns, one owner a run, and an heir when it dies."""

import time
from collections import Counter

import pytest
from process_tools import Log, autopsy, chance, look, until
from test_process_kills import UNDISTURBED, assert_nothing_recorded_was_redone

HEIR_SECONDS = 2.0


def crowd(spawn, tmp_path, size, *args):
    programs = [spawn("crowd.py", *args) for _ in range(size)]
    for program in programs:
        until(lambda: program.said() or program.ended)
        assert program.said() == ["ready"], program.errors()
    (tmp_path / "go").touch()
    return programs


def test_processes_on_one_file_take_turns(spawn, tmp_path):
    size = 8
    programs = crowd(spawn, tmp_path, size, "own", 2.0)
    ends = [program.result() for program in programs]
    counts = sorted(end["runs"] for end in ends)
    print(f"{size} processes: runs of each in 2 s: {counts}")
    assert [end["trouble"] for end in ends] == [[]] * size, (
        "none has to wait for a lock longer than the store waits"
    )
    assert counts[0] > 0
    assert counts[-1] <= 4 * counts[0], counts
    after = look(tmp_path / "outlast.db")
    assert len(after.runs) == sum(counts)
    assert {run["status"] for run in after.runs.values()} == {"done"}


@pytest.mark.parametrize("size", [2, 8])
def test_of_processes_that_start_one_id_at_once_exactly_one_executes_it(spawn, tmp_path, size):
    (tmp_path / "release").touch()
    programs = crowd(spawn, tmp_path, size, "same")
    ends = [program.result() for program in programs]
    expected = [0, 2, 4, 6, 8, "held", 0, 2, 4, 6, 8]
    assert ends == [{"result": expected, "trouble": []}] * size
    lines = Log(tmp_path).update()
    assert len(lines) == len({line.key for line in lines}) == 11, "each step was executed once"
    assert len({line.pid for line in lines}) == 1
    assert "death" not in look(tmp_path / "outlast.db").kinds("same")


@pytest.mark.parametrize("size", [2, 8])
def test_when_the_owner_is_killed_another_goes_on_and_all_get_the_result(spawn, tmp_path, size):
    programs, log = crowd(spawn, tmp_path, size, "same"), Log(tmp_path)
    dead = []
    for _ in range(min(size - 1, 3)):

        def holder(known=tuple(dead)):
            return [line.pid for line in log.update() if line.key == "hold#1" and line.pid not in known]

        (pid,) = until(holder)
        (owner,) = [program for program in programs if program.pid == pid]
        owner.kill()
        killed = time.monotonic()
        dead.append(pid)
        (heir,) = until(
            lambda: [line.pid for line in log.update() if line.key == "hold#1" and line.pid not in dead]
        )
        seconds = time.monotonic() - killed
        print(f"{size} processes: {heir} went on {seconds:.3f} s after {pid} was killed")
        assert seconds < HEIR_SECONDS
    (tmp_path / "release").touch()
    alive = [program for program in programs if program.pid not in dead]
    assert [end["result"][5] for end in [program.result() for program in alive]] == ["held"] * len(alive)
    assert len({str(program.said()[-1]["result"]) for program in alive}) == 1
    assert [program.said()[-1]["trouble"] for program in alive] == [[]] * len(alive)
    lines = log.update()
    assert sorted(line.key for line in lines if line.key != "hold#1") == sorted(
        f"note#{n}" for n in range(1, 11)
    )
    assert look(tmp_path / "outlast.db").kinds("same").count("death") == len(dead)


def test_processes_that_execute_one_run_and_are_killed_at_random_end_it_together(spawn, tmp_path):
    rng, log = chance("one run, killed at random"), Log(tmp_path)
    kills = 0
    for number in range(4):
        id = f"r{number}"
        programs = [spawn("agent.py", id) for _ in range(3)]
        for _ in range(4):
            lines = len(log.update()) + rng.randint(0, 8)
            until(
                lambda: len(log.update()) >= lines or all(program.ended for program in programs), pause=0.0005
            )
            time.sleep(rng.uniform(0, 0.02))  # the moment itself
            victim = rng.choice(programs)
            if not victim.ended:
                victim.kill()
                kills += 1
                programs[programs.index(victim)] = spawn("agent.py", id)
        assert [program.result() for program in programs] == [UNDISTURBED] * 3
    after = autopsy(tmp_path / "outlast.db")
    assert {run["status"] for run in after.runs.values()} == {"done"}
    assert_nothing_recorded_was_redone(after, log.update())
    starts = Counter((line.run, line.key, line.attempt) for line in log.lines if line.when == "before")
    for (run, key, attempt), times in starts.items():
        assert times <= 1 + after.runs[run]["deaths"], f"{key} of {run}, attempt {attempt}"
    print(
        f"{kills} kills, {len(after.deaths())} deaths in the journals, {starts.total() - len(starts)} steps redone"
    )
