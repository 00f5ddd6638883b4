"""Ended by any signal, started again: the right result, nothing recorded done twice."""

import signal
import time

import pytest
from process_tools import Log, autopsy, chance, until
from test_process_kills import UNDISTURBED, Inquest

SIGNALS = ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGKILL"]


@pytest.mark.parametrize("name", SIGNALS)
def test_a_program_ended_by_a_signal_goes_on_from_its_last_recorded_step(spawn, tmp_path, name):
    rng, inquest = chance(name), Inquest(tmp_path)
    number = getattr(signal, name)
    for _ in range(2):  # the second one ends a life that began with a replay
        program, count = spawn("agent.py", "r"), rng.randint(2, 12)
        until(lambda: program.ended or len(inquest.log.of(program.pid)) >= count, pause=0.0005)
        if name == "SIGKILL":
            program.stop()
        program.signal(number)
        assert program.wait() in (-number, 0), (
            program.errors()
        )  # 0: on a busy machine it may have ended before
        inquest.examine(program)
    last = spawn("agent.py", "r")
    assert last.result() == UNDISTURBED
    inquest.examine(last)
    inquest.close()


def test_sigint_ends_it_promptly_and_gives_the_run_back_as_interrupted(spawn, tmp_path):
    rng, inquest, seconds = chance("SIGINT"), Inquest(tmp_path), []
    for _ in range(4):
        program = spawn("agent.py", "r")
        until(
            lambda: program.ended or len(inquest.log.of(program.pid)) >= rng.choice([1, 2, 6]), pause=0.0005
        )
        time.sleep(rng.uniform(0, 0.02))
        sent = time.monotonic()
        program.signal(signal.SIGINT)
        code = program.wait()
        seconds.append(time.monotonic() - sent)
        assert code in (-signal.SIGINT, 0), program.errors()  # 0: it had just ended
        inquest.examine(program)
        run = inquest.before.runs.get("r", {"worker": None, "status": "queued", "interruptions": 0})
        assert run["worker"] is None
        assert run["status"] in ("queued", "done")
        assert inquest.before.kinds("r").count("interruption") == run["interruptions"]
        assert "was never retrieved" not in program.errors()
        assert "Task was destroyed" not in program.errors()
    assert spawn("agent.py", "r").result() == UNDISTURBED
    after = autopsy(tmp_path / "outlast.db")
    assert after.deaths() == [], "nobody died"
    assert {run["deaths"] for run in after.runs.values()} == {0}
    print(f"from SIGINT to the end: {max(seconds):.3f} s at the most")
    assert min(seconds) < 2.0
    assert max(seconds) < 15.0, "whatever else the machine does"


def test_sigint_in_the_middle_of_a_step_is_an_interruption_in_the_journal(spawn, tmp_path):
    log = Log(tmp_path)
    for number in range(20):  # on a busy machine the run may be over before the signal is there
        run = f"r{number}"
        program = spawn("agent.py", run)
        until(lambda: [line for line in log.of(program.pid) if line.key == "tick#2"], pause=0.0005)
        program.signal(signal.SIGINT)
        code, left = program.wait(), autopsy(tmp_path / "outlast.db")
        if left.runs[run]["status"] != "done":
            break
    assert code == -signal.SIGINT, "as it would have ended by itself"
    assert left.runs[run]["status"] == "queued"
    assert left.kinds(run)[-1] == "interruption"
    assert left.workers == {}, "it was struck off"
    assert not list((tmp_path / "outlast.db.d").glob("worker-*")), "and left no lock file behind"
    assert not list((tmp_path / "outlast.db.d").glob("bell-*"))
    began = time.monotonic()
    assert spawn("agent.py", run).result() == UNDISTURBED
    print(f"started again: {time.monotonic() - began:.3f} s")
