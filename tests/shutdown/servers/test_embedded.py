"""An Outlast in a program without a server: a signal drains it, and then has the effect it would have had."""

import signal
import time

import pytest
from kubelet import passing_grace
from programs_servers import LONG, PASSING, executing

from outlast.shutdown.signal_thread import SAME_SECONDS

SIGTERM, SIGINT = signal.SIGTERM, signal.SIGINT
either = pytest.mark.parametrize(
    "number", [SIGTERM, pytest.param(SIGINT, marks=pytest.mark.extended)]
)


def assert_released(program, cleanups: int = 1) -> None:
    """Check that the step under way was recorded, that the next did not begin, and that the run is released."""
    assert (program.times("first-cancelled"), program.times("second-begins")) == (0, 0)
    assert program.done("run") == ["first#1"]
    row = program.run("run")
    assert (row.status, row.worker) == ("queued", None)
    assert program.times("cleanup") == cleanups
    assert program.times("lifespan-ends") == program.times("lifespan-begins")


# --- with a loop ---


@pytest.mark.parametrize(
    ("how", "number", "loop"),
    [
        (how, number, loop)
        for how in ("waits", "result", "by-hand")
        for number in (SIGTERM, SIGINT)
        for loop in ("asyncio", "uvloop")
        if LONG or (number == SIGTERM) == (loop == "asyncio") == (how != "result")
    ],
)
def test_a_signal_drains_a_program_and_then_ends_it(tmp_path, how, number, loop):
    with executing(tmp_path, "plain.py", how, loop=loop) as program:
        program.wait_for("first-begins")
        program.drain_by(number)
        program.open_gate()
        assert program.wait() == -number
        assert_released(program)
        assert program.times("left") == 0
        if how == "waits":
            assert program.word("cancelled") == f"drain: {number.name}"
        assert ("KeyboardInterrupt" in program.printed) == (number == SIGINT)


def test_a_second_sigint_leaves_at_once(tmp_path):
    with executing(tmp_path, "plain.py", "waits") as program:
        program.wait_for("first-begins")
        program.drain_by(SIGINT)
        time.sleep(2 * SAME_SECONDS)  # two signals in less time are one
        assert not program.has_ended
        program.send(SIGINT)
        assert program.wait() in {-SIGINT, 130, -signal.SIGALRM}
        program.assert_run_is_claimable()


@either
def test_a_hung_step_does_not_keep_a_program_from_ending(tmp_path, number):
    with executing(tmp_path, "plain.py", "hung", **PASSING) as program:
        program.wait_for("first-begins")
        program.drain_by(number)
        program.let_pass(passing_grace.UNTIL_STEPS_ARE_LEFT)
        assert program.wait() == -number
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert program.drain()["not_checkpointed"] == ["run first_in_thread#1"]


def test_a_program_that_catches_keyboard_interrupt_has_no_deadline(tmp_path):
    with executing(tmp_path, "plain.py", "catches") as program:
        program.wait_for("first-begins")
        program.drain_by(SIGINT)
        program.open_gate()
        assert program.wait() == 0
        assert program.word("caught") == "True False"
        assert_released(program)


def test_a_program_with_its_own_handler_is_drained_and_has_no_deadline(tmp_path):
    with executing(tmp_path, "plain.py", "own-handler") as program:
        program.wait_for("first-begins")
        program.drain_by(SIGTERM)
        program.open_gate()
        assert program.word("own") == "SIGTERM"
        assert program.word("drain") == "SIGTERM"
        program.send(signal.SIGUSR1)
        assert program.wait() == 0
        assert program.word("still") == "True False"
        assert program.word("restored") == "True"
        assert_released(program)


def test_a_second_signal_ends_a_program_that_handled_the_first(tmp_path):
    with executing(tmp_path, "plain.py", "own-handler", and_on=1) as program:
        program.drain_by(SIGTERM)
        program.open_gate()
        program.wait_for("drain SIGTERM")
        program.send(signal.SIGUSR1)
        program.wait_for("still")
        program.send(SIGINT)
        assert program.wait() == -SIGINT
        assert "KeyboardInterrupt" in program.printed
        assert_released(program)


@either
def test_a_signal_ends_a_program_that_drained_itself(tmp_path, number):
    with executing(tmp_path, "plain.py", "drains-itself") as program:
        program.send(number)
        assert program.wait() == -number
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert "is not struck off" not in program.printed


def test_a_program_closes_in_order_long_after_its_drain(tmp_path):
    with executing(tmp_path, "plain.py", "drains-itself", ready="", and_leaves=1) as program:
        assert program.wait() == 0
        assert program.word("drained") == "the program wants it"
        assert (program.times("cleanup"), program.times("lifespan-ends")) == (1, 1)
        assert "is not struck off" not in program.printed


def test_a_signal_does_not_cut_the_clean_up_of_a_program_that_closes(tmp_path):
    with executing(tmp_path, "plain.py", "closing") as program:
        program.send(SIGTERM)
        assert program.wait() == -SIGTERM
        assert [word.split()[0] for word in program.said][-3:] == [
            "slow-cleanup",
            "cleanup",
            "lifespan-ends",
        ]


def test_outside_the_main_thread_a_warning_is_logged_and_drain_works(tmp_path):
    with executing(tmp_path, "plain.py", "in-thread", ready="") as program:
        program.wait_until(program.is_draining)
        program.open_gate()
        assert program.wait() == 0
        assert program.word("same") == "True"
        assert program.word("drained") == "asked in a thread 1 queued"
        assert program.printed.count("Signals are received only in the main thread") == 1
        assert program.word("restored") == "True"


@pytest.mark.parametrize("name", ["plain.py", "plain_sync.py"])
def test_signals_0_installs_nothing(tmp_path, name):
    with executing(tmp_path, name, "no-signals") as program:
        assert program.word("same") == "True"
        program.send(SIGTERM)
        assert program.wait() == -SIGTERM
        assert program.times("cleanup") == 0


@pytest.mark.parametrize(
    ("name", "number", "gates"),
    [
        (name, number, gates)
        for name in ("plain.py", "plain_sync.py")
        for number in (SIGTERM, SIGINT)
        for gates in (("gate", "other-gate"), ("other-gate", "gate"))
        if LONG or (name == "plain.py") == (number == SIGTERM) == (gates[0] == "gate")
    ],
)
def test_two_in_one_program_both_drain_before_the_signal_has_its_effect(
    tmp_path, name, number, gates
):
    stores = {"gate": "agents.db", "other-gate": "other.db"}
    with executing(tmp_path, name, "two") as program:
        program.wait_for("first-begins", 2)
        program.drain_by(number, *stores.values())
        program.open_gate(gates[0])
        program.wait_until(lambda: program.run("run", stores[gates[0]]).worker is None)
        assert not program.has_ended
        program.open_gate(gates[1])
        assert program.wait() == -number
        assert program.times("first-ends") == 2
        assert_released(program, cleanups=2)


def test_two_in_one_program_are_closed_one_after_the_other(tmp_path):
    with executing(tmp_path, "plain.py", "two", ready="", and_leaves=1) as program:
        assert program.wait() == 0
        assert program.word("draining") == "False"
        assert program.word("restored") == "True"


@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("plain.py", "asyncio"),
        pytest.param("plain.py", "uvloop", marks=pytest.mark.extended),
        ("plain_sync.py", ""),
    ],
)
def test_many_in_a_row_leave_no_threads_or_descriptors_behind(tmp_path, name, loop):
    with executing(tmp_path, name, "many-times", ready="", loop=loop) as program:
        assert program.wait() == 0, program.printed
        assert program.word("threads").split()[0] == "True", program.word("threads")
        assert program.word("open").split()[0] == "True", program.word("open")
        assert program.word("restored") == "True"


def test_signals_to_children_do_not_drain_their_parent(tmp_path):
    with executing(tmp_path, "plain.py", "forks") as program:
        program.open_gate()
        assert program.word("child").split()[0] == "SIG_DFL"
        assert {program.word(kind) for kind in ("forked", "fork", "spawn", "forkserver")} == {
            str(-SIGTERM)
        }
        assert program.word("draining") == "False"
        program.send(SIGTERM)
        assert program.wait() == -SIGTERM
        assert program.times("cleanup") == 1


# --- without a loop ---


@pytest.mark.parametrize(
    "where", ["sleep", "lock", "computes", "result"] if LONG else ["lock", "result"]
)
def test_sigterm_drains_a_sync_program_and_then_ends_it(tmp_path, where):
    with executing(tmp_path, "plain_sync.py", where) as program:
        program.wait_for("first-begins")
        program.drain_by(SIGTERM)
        program.open_gate()
        assert program.wait() == -SIGTERM
        assert_released(program)


@pytest.mark.parametrize(
    "where", ["sleep", "lock", "computes", "result"] if LONG else ["sleep", "computes"]
)
def test_sigint_drains_a_sync_program_and_then_raises_keyboard_interrupt(tmp_path, where):
    with executing(tmp_path, "plain_sync.py", where) as program:
        program.wait_for("first-begins")
        program.drain_by(SIGINT)
        program.open_gate()
        assert program.wait() == -SIGINT
        assert_released(program)
        assert program.word("raised") == "KeyboardInterrupt"
        assert program.word("restored") == "True SIG_DFL default_int_handler"
        assert "in thread" not in program.printed.lower(), program.printed


def test_a_sync_program_with_its_own_handler_is_drained(tmp_path):
    with executing(tmp_path, "plain_sync.py", "own-handler") as program:
        program.wait_for("first-begins")
        program.drain_by(SIGTERM)
        program.open_gate()
        assert program.wait() == 0
        assert (program.word("own"), program.word("drain")) == ("SIGTERM", "SIGTERM")
        assert program.word("drained") == "1"
        assert program.word("restored") == "True own default_int_handler"
        assert_released(program)


def test_a_sync_program_can_drain_in_a_thread(tmp_path):
    with executing(tmp_path, "plain_sync.py", "thread", ready="") as program:
        program.wait_until(program.is_draining)
        program.open_gate()
        assert program.wait() == 0
        assert program.word("drained") == "asked in a thread"
        assert program.printed.count("Signals are received only in the main thread") == 1
        assert program.word("restored") == "True"
        assert_released(program)


# --- run() ---


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 75), (SIGINT, 130)])
def test_a_program_of_several_runs_begins_no_other_after_a_signal(tmp_path, number, code):
    with executing(tmp_path, "several.py", "runs") as program:
        program.wait_for("first-begins")
        program.drain_by(number)
        program.open_gate()
        assert program.wait() == code
        assert program.word("result") == "first", "the first run ended in time"
        assert program.times("first-begins") == 1
        assert program.run("run-1").status == "done"


def test_a_program_that_goes_on_after_its_run_is_ended_by_its_deadline(tmp_path):
    with executing(tmp_path, "several.py", "lingers", **PASSING) as program:
        program.wait_for("first-begins")
        program.drain_by(SIGTERM)
        program.open_gate()
        assert program.word("result") == "first"
        assert not program.has_ended
        program.let_pass(passing_grace.UNTIL_THE_END)
        assert program.wait() == 75


def test_a_run_that_had_not_begun_before_sigterm_is_interrupted(tmp_path):
    with executing(tmp_path, "several.py", "early") as program:
        assert program.wait() == 75, program.printed
        assert program.times("first-begins") == 0


def test_a_child_of_a_program_that_got_sigterm_may_run(tmp_path):
    with executing(tmp_path, "several.py", "forks") as program:
        program.wait_for("first-begins")
        program.drain_by(SIGTERM)
        program.open_gate()
        assert program.wait() == 0
        assert program.word("child") == "first"
