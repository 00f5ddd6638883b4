"""An Outlast in somebody's own program, with a loop or without: a signal drains it, and then has the effect that it would have had."""

import signal
import time

import pytest
from programs_servers import WAIT_SECONDS, executing

pytestmark = pytest.mark.timeout(180)

SIGTERM, SIGINT = signal.SIGTERM, signal.SIGINT
LOOPS = ["asyncio", "uvloop"]


def assert_released(program, cleanups: int = 1) -> None:
    """The step under way ended and is recorded, the next did not begin, and the run is anybody's."""
    assert (program.times("first-cancelled"), program.times("second-begins")) == (0, 0)
    assert program.done("run") == ["first#1"]
    row = program.run("run")
    assert (row.status, row.worker) == ("queued", None)
    assert program.times("cleanup") == cleanups
    assert program.times("lifespan-ends") == program.times("lifespan-begins")


# --- with a loop ---


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
@pytest.mark.parametrize("how", ["waits", "result", "by-hand"])
def test_a_signal_drains_a_program_and_then_ends_it(tmp_path, how, number, loop):
    with executing(tmp_path, "plain.py", how, loop=loop) as program:
        program.until("first-begins")
        program.send(number)
        assert program.ended() == -number
        assert_released(program)
        assert program.times("left") == 0
        if how == "waits":
            assert program.word("cancelled") == f"drain: {number.name}"
        assert ("KeyboardInterrupt" in program.printed) == (number == SIGINT)


def test_a_second_sigint_does_not_wait(tmp_path):
    with executing(tmp_path, "plain.py", "waits", seconds=3600) as program:
        program.until("first-begins")
        program.send(SIGINT)
        time.sleep(0.5)
        assert program.process.poll() is None
        program.send(SIGINT)
        assert program.ended() in {-SIGINT, 130}
        row = program.run("run")
        assert (row.status, row.worker) == ("queued", None)


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_hung_step_holds_nobody_up(tmp_path, number):
    with executing(tmp_path, "plain.py", "hung", outlast_grace=3) as program:
        program.until("first-begins")
        sent = program.send(number)
        assert program.ended() == -number
        assert time.monotonic() - sent < 20
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert program.drain()["not_checkpointed"] == ["run first_in_thread#1"]


def test_a_program_that_catches_its_keyboard_interrupt_lives_on_beyond_grace(tmp_path):
    with executing(tmp_path, "plain.py", "catches", outlast_grace=2, seconds=0.3) as program:
        program.until("first-begins")
        program.send(SIGINT)
        assert program.ended() == 0
        assert program.word("caught") == "True"
        assert program.said[-1] == "still"
        assert_released(program)


def test_a_program_with_a_handler_of_its_own_decides_itself(tmp_path):
    with executing(tmp_path, "plain.py", "own-handler", outlast_grace=2, seconds=0.3) as program:
        program.until("first-begins")
        program.send(SIGTERM)
        assert program.word("own") == "SIGTERM"
        assert program.word("drain") == "SIGTERM"
        time.sleep(3)  # beyond grace
        assert program.process.poll() is None
        program.send(signal.SIGUSR1)
        assert program.ended() == 0
        assert program.word("still") == "True"
        assert program.word("restored") == "True"
        assert_released(program)


def test_after_a_signal_that_its_program_saw_to_another_one_still_ends_it(tmp_path):
    with executing(tmp_path, "plain.py", "own-handler", and_on=1) as program:
        program.send(SIGTERM)
        program.until("drain SIGTERM")
        program.send(signal.SIGUSR1)
        program.until("still")
        program.send(SIGINT)
        assert program.ended() == -SIGINT
        assert "KeyboardInterrupt" in program.printed
        assert_released(program)


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_program_that_has_drained_itself_can_still_be_ended(tmp_path, number):
    with executing(tmp_path, "plain.py", "drains-itself") as program:
        program.send(number)
        assert program.ended() == -number
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert "is not struck off" not in program.printed


def test_a_program_that_drained_long_ago_leaves_in_order(tmp_path):
    with executing(tmp_path, "plain.py", "drains-itself", ready="", and_leaves=1) as program:
        assert program.ended() == 0
        assert program.word("drained") == "the program wants it True"
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert "is not struck off" not in program.printed


def test_a_signal_does_not_cut_short_what_is_done_on_leaving(tmp_path):
    with executing(tmp_path, "plain.py", "closing") as program:
        program.send(SIGTERM)
        assert program.ended() == -SIGTERM
        assert [word.split()[0] for word in program.said][-3:] == ["slow-cleanup", "cleanup", "lifespan-ends"]


def test_outside_the_main_thread_a_warning_is_logged_and_a_drain_works(tmp_path):
    with executing(tmp_path, "plain.py", "in-thread", ready="") as program:
        assert program.ended() == 0
        assert program.word("same") == "True"
        assert program.word("drained") == "asked in a thread 1 queued"
        assert program.printed.count("signals are only received in the main thread") == 1
        assert program.word("restored") == "True"


@pytest.mark.parametrize("name", ["plain.py", "plain_sync.py"])
def test_with_signals_0_nothing_is_installed(tmp_path, name):
    with executing(tmp_path, name, "no-signals") as program:
        assert program.word("same") == "True"
        program.send(SIGTERM)
        assert program.ended() == -SIGTERM
        assert program.times("cleanup") == 0


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
@pytest.mark.parametrize(("seconds", "other"), [(1, 1), (1, 2.5), (2.5, 1)])
@pytest.mark.parametrize("name", ["plain.py", "plain_sync.py"])
def test_two_in_one_program_both_drain_and_then_the_signal_has_its_effect(
    tmp_path, name, seconds, other, number
):
    with executing(tmp_path, name, "two", seconds=seconds, other_seconds=other) as program:
        program.until("first-begins", 2)
        program.send(number)
        assert program.ended() == -number
        assert program.times("first-ends") == 2
        assert_released(program, cleanups=2)


def test_two_in_one_program_are_left_one_after_the_other(tmp_path):
    with executing(tmp_path, "plain.py", "two", ready="", and_leaves=1) as program:
        assert program.ended() == 0
        assert program.word("draining") == "False"
        assert program.word("restored") == "True"


@pytest.mark.parametrize(
    ("name", "loop"), [("plain.py", "asyncio"), ("plain.py", "uvloop"), ("plain_sync.py", "")]
)
def test_fifty_of_them_leave_nothing_behind(tmp_path, name, loop):
    with executing(tmp_path, name, "many-times", ready="", loop=loop) as program:
        assert program.ended() == 0, program.printed
        assert program.word("threads").split()[0] == "True", program.word("threads")
        assert program.word("open").split()[0] == "True", program.word("open")
        assert program.word("restored") == "True"


def test_children_are_ended_by_their_own_signals_and_their_parent_goes_on(tmp_path):
    with executing(tmp_path, "plain.py", "forks", seconds=0.5) as program:
        assert program.word("child").split()[0] == "SIG_DFL"
        assert {program.word(kind) for kind in ("forked", "fork", "spawn", "forkserver")} == {str(-SIGTERM)}
        assert program.word("draining") == "False"
        program.send(SIGTERM)
        assert program.ended() == -SIGTERM
        assert program.times("cleanup") == 1


# --- without a loop ---


@pytest.mark.parametrize("where", ["sleep", "lock", "computes", "result"])
def test_a_sigterm_drains_a_sync_program_and_then_ends_it(tmp_path, where):
    with executing(tmp_path, "plain_sync.py", where) as program:
        program.until("first-begins")
        program.send(SIGTERM)
        assert program.ended() == -SIGTERM
        assert_released(program)


@pytest.mark.parametrize("where", ["sleep", "lock", "computes", "result"])
def test_a_sigint_drains_a_sync_program_and_is_then_a_keyboard_interrupt(tmp_path, where):
    with executing(tmp_path, "plain_sync.py", where) as program:
        program.until("first-begins")
        program.send(SIGINT)
        assert program.ended() == -SIGINT
        assert_released(program)
        assert program.word("raised") == "KeyboardInterrupt"
        assert program.word("restored") == "True SIG_DFL default_int_handler"
        assert "in thread" not in program.printed.lower(), program.printed


def test_a_sync_program_with_a_handler_of_its_own_decides_itself(tmp_path):
    with executing(tmp_path, "plain_sync.py", "own-handler") as program:
        program.until("first-begins")
        program.send(SIGTERM)
        assert program.ended() == 0
        assert (program.word("own"), program.word("drain")) == ("SIGTERM", "SIGTERM")
        assert program.word("drained") == "1"
        assert program.word("restored") == "True own default_int_handler"
        assert_released(program)


def test_a_sync_program_in_a_thread_can_drain(tmp_path):
    with executing(tmp_path, "plain_sync.py", "thread", ready="") as program:
        assert program.ended() == 0
        assert program.word("drained") == "asked in a thread"
        assert program.printed.count("signals are only received in the main thread") == 1
        assert program.word("restored") == "True"
        assert_released(program)


# --- run() ---


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 75), (SIGINT, 130)])
def test_a_program_of_several_runs_that_was_told_to_end_begins_no_other(tmp_path, number, code):
    with executing(tmp_path, "several.py", "runs") as program:
        program.until("first-begins")
        program.send(number)
        assert program.ended() == code
        assert program.word("result") == "first", "the first one ended in time"
        assert program.times("first-begins") == 1
        assert program.run("run-1").status == "done"


def test_a_program_that_was_told_to_end_and_goes_on_is_gone_before_grace_ends(tmp_path):
    with executing(tmp_path, "several.py", "lingers", outlast_grace=3, seconds=0.5) as program:
        program.until("first-begins")
        sent = program.send(SIGTERM)
        assert program.ended() == 75
        assert time.monotonic() - sent < WAIT_SECONDS / 3
        assert program.word("result") == "first"


def test_a_run_that_was_not_begun_when_its_process_was_told_to_end_is_interrupted_too(tmp_path):
    with executing(tmp_path, "several.py", "early") as program:
        assert program.ended() == 75, program.printed
        assert program.times("first-begins") == 0


def test_a_child_of_a_program_that_was_told_to_end_may_run(tmp_path):
    with executing(tmp_path, "several.py", "forks") as program:
        program.until("first-begins")
        program.send(SIGTERM)
        assert program.ended() == 0
        assert program.word("child") == "first"
