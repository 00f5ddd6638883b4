"""A program that a signal ended continues its run when it is started again."""

import signal
import time

import pytest
from test_process_kills import UNDISTURBED, Inquest

from support.outside_log import OutsideLog
from support.seeds import seeded_random
from support.snapshots import read_dead_store
from support.waiting import wait_until

SIGNALS = ["SIGTERM", "SIGSEGV", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGKILL"]


@pytest.mark.parametrize(
    "name",
    [
        name if name == "SIGTERM" else pytest.param(name, marks=pytest.mark.extended)
        for name in SIGNALS
    ],
)
def test_program_ended_by_a_signal_continues_after_its_last_recorded_step(spawn, tmp_path, name):
    rng, inquest = seeded_random(name), Inquest(tmp_path)
    number = getattr(signal, name)
    for _ in range(2):  # the second signal ends a process that began with a replay
        program, count = spawn("agent.py", "r"), rng.randint(2, 12)
        wait_until(lambda: program.has_ended or len(inquest.log.of(program.pid)) >= count)
        if name == "SIGKILL":
            program.pause()
        program.send_signal(number)
        # 0: on a busy machine it may have ended before the signal.
        assert program.wait() in (-number, 0), program.errors
        inquest.examine(program)
    last = spawn("agent.py", "r")
    assert last.result() == UNDISTURBED
    inquest.examine(last)
    inquest.close()


def test_sigint_at_random_moments_releases_the_run_as_interrupted(spawn, tmp_path):
    rng, inquest = seeded_random("SIGINT"), Inquest(tmp_path)
    for _ in range(4):
        program, count = spawn("agent.py", "r"), rng.choice([1, 2, 6])
        wait_until(lambda: program.has_ended or len(inquest.log.of(program.pid)) >= count)
        time.sleep(rng.uniform(0, 0.02))  # a random moment
        program.send_signal(signal.SIGINT)
        # 0: it had just ended.
        assert program.wait() in (-signal.SIGINT, 0), program.errors
        inquest.examine(program)
        run = inquest.before.runs.get("r", {"worker": None, "status": "queued", "interruptions": 0})
        assert run["worker"] is None
        assert run["status"] in ("queued", "waiting", "done")
        assert inquest.before.kinds("r").count("interruption") == run["interruptions"]
        assert "was never retrieved" not in program.errors
        assert "Task was destroyed" not in program.errors
    assert spawn("agent.py", "r").result() == UNDISTURBED
    after = read_dead_store(tmp_path / "outlast.db")
    assert after.deaths() == []
    assert {run["deaths"] for run in after.runs.values()} == {0}


def test_sigint_during_a_step_records_an_interruption_and_leaves_no_files(spawn, tmp_path):
    log = OutsideLog(tmp_path)
    soon = {
        "OUTLAST_GRACE": "120",
        "OUTLAST_CHECKPOINT_RESERVE": "60",
        "OUTLAST_EXIT_RESERVE": "58",
    }
    program = spawn("agent.py", "r", "tick#2", env=soon)
    program.wait_until(lambda: [line for line in log.of(program.pid) if line.key == "tick#2"])
    program.send_signal(signal.SIGINT)
    assert program.wait() == -signal.SIGINT, program.errors
    left = read_dead_store(tmp_path / "outlast.db")
    assert left.runs["r"]["status"] == "queued"
    assert left.kinds("r")[-1] == "interruption"
    assert left.workers == {}
    assert not list((tmp_path / "outlast.db.d").glob("worker-*")), "no lock file is left"
    assert not list((tmp_path / "outlast.db.d").glob("notify-*"))
    assert spawn("agent.py", "r").result() == UNDISTURBED
