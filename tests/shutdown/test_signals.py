"""Signals are received, passed on and handed back, and handlers are restored, in real processes."""

import os
import signal
import threading
import time

import pytest
from programs_signals import AS_INIT, LONG, _init, executing  # noqa: F401 - a fixture

from outlast.shutdown.signal_handlers import SignalReceiver
from outlast.shutdown.signal_thread import LATE_BYTE_SECONDS, SignalPair

# --- a signal is received ---


@pytest.mark.parametrize(
    ("where", "number", "guard"),
    [
        pytest.param(
            where, number, guard, id=f"{where}-{number.name}-{'guarded' if guard else 'alone'}"
        )
        for at, where in enumerate(
            ["sleep", "lock", "sqlite", "loop", "callback", "uvloop", "uvloop-callback"]
        )
        for number in (signal.SIGTERM, signal.SIGINT)
        for guard in ((), (60,))
        if LONG
        or ((number is signal.SIGINT) == (at % 2 == 1) and bool(guard) == (at // 2 % 2 == 1))
    ],
)
def test_a_signal_begins_a_drain_wherever_the_main_thread_is(tmp_path, where, number, guard):
    with executing(tmp_path, "busy.py", where, *guard) as program:
        program.send_signal(number)
        program.wait_for(f"begin {number.name} outlast-signals")
        assert not program.has_ended
        assert program.begun() == [number.name]


def test_a_late_handler_is_no_second_signal(tmp_path):
    with executing(tmp_path, "busy.py", "sqlite-and-out") as program:
        program.send_signal(signal.SIGINT)
        program.wait_for("out")
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        assert program.begun() == ["SIGINT", "SIGTERM"]


@pytest.mark.parametrize("guard", [(), (60,)], ids=["alone", "guarded"])
def test_a_second_signal_is_a_second_call(tmp_path, guard):
    with executing(tmp_path, "busy.py", "loop", *guard) as program:
        program.send_signal(signal.SIGINT)
        program.wait_for("begin SIGINT")
        time.sleep(0.1)  # more than what makes two of them one
        program.send_signal(signal.SIGINT)
        program.wait_for("begin SIGINT", times=2)
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        assert program.begun() == ["SIGINT", "SIGINT", "SIGTERM"]


def test_a_signal_that_arrives_both_ways_is_one():
    for first, second in [("byte_arrived", "handler_called"), ("handler_called", "byte_arrived")]:
        pair = SignalPair()
        assert getattr(pair, first)(100.0)
        assert not getattr(pair, second)(100.01)
        assert getattr(pair, first)(101.0)
        assert not getattr(pair, second)(101.01)


def test_a_signal_arrives_when_one_way_fails():
    bytes_only, handlers_only = SignalPair(), SignalPair()
    assert [bytes_only.byte_arrived(at) for at in (1.0, 1.01, 2.0, 9.0)] == [
        True,
        False,
        True,
        True,
    ]
    assert [handlers_only.handler_called(at) for at in (1.0, 1.01, 2.0, 9.0)] == [
        True,
        False,
        True,
        True,
    ]


def test_one_handler_call_after_several_wake_ups_is_no_signal():
    pair = SignalPair()
    assert [pair.byte_arrived(1.0), pair.byte_arrived(2.0)] == [True, True]
    assert not pair.handler_called(30.0)
    assert pair.handler_called(31.0)


def test_a_guard_that_is_seconds_late_does_not_repeat_a_signal():
    pair = SignalPair()
    assert pair.handler_called(1.0)
    assert not pair.byte_arrived(6.0)


def test_a_slow_guard_does_not_repeat_a_signal():
    pair = SignalPair()
    assert pair.handler_called(1.0)
    assert pair.handler_called(1.2)
    assert [pair.byte_arrived(1.3), pair.byte_arrived(1.0 + LATE_BYTE_SECONDS)] == [False, False]
    assert pair.byte_arrived(1.3 + LATE_BYTE_SECONDS)


def test_only_the_main_thread_can_install(caplog):
    signals = SignalReceiver(lambda number, at: None)
    before = signal.getsignal(signal.SIGTERM)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(signals.install()))
    thread.start()
    thread.join()
    assert answers == [False]
    assert len(caplog.records) == 1
    assert "Signals are received only in the main thread" in caplog.text
    assert "Call app.drain() to drain it." in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before
    signals.restore()


# --- handlers set before and after ---


def test_a_handler_set_before_is_called(tmp_path):
    with executing(tmp_path, "chained.py", "handler-before") as program:
        assert program.word("had") == "True False"
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        program.wait_for("own SIGTERM True")


def test_a_handler_set_after_is_called_and_a_drain_begins(tmp_path):
    with executing(tmp_path, "chained.py", "handler-after") as program:
        assert program.word("had") == "True"
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        program.wait_for("own SIGTERM True")


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("handler-after-is-kept", ["is True", "int True", "fd -1"]),
        ("descriptor-after-is-kept", ["is True"]),
        ("descriptor-closed-meanwhile", ["is True"]),
    ],
)
def test_restore_keeps_what_the_program_has_set_since(tmp_path, who, said):
    with executing(tmp_path, "chained.py", who) as program:
        assert program.wait() == 0
        assert program.said == [*said, "ready"]


def test_an_earlier_wake_up_descriptor_gets_every_byte(tmp_path):
    with executing(tmp_path, "chained.py", "descriptor-before") as program:
        program.send_signal(signal.SIGTERM)
        program.wait_for("byte SIGTERM")
        program.send_signal(signal.SIGUSR1)
        program.wait_for("byte SIGUSR1")
        assert program.begun() == ["SIGTERM"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_loop_handlers_set_before_are_called(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-before", loop) as program:
        assert program.word("had") == "True False"
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        program.wait_for("own SIGTERM")
        program.send_signal(signal.SIGUSR1)
        program.wait_for("own SIGUSR1")
        program.send_signal(signal.SIGINT)
        program.wait_for("begin SIGINT")
        assert [said for said in program.said if said.startswith("own")] == [
            "own SIGTERM False",
            "own SIGUSR1 False",
        ]
        assert program.begun() == ["SIGTERM", "SIGINT"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_loop_handlers_work_after_restore(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-before-and-restored", loop) as program:
        program.send_signal(signal.SIGTERM)
        program.wait_for("own SIGTERM")
        time.sleep(0.1)
        assert program.begun() == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loop_handler_set_after_is_called(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-after", loop) as program:
        assert program.word("had") == "True"
        program.send_signal(signal.SIGTERM)
        program.wait_for("own SIGTERM")
        if loop == "uvloop":  # asyncio's has taken both ways: the limit that signals.py states
            program.wait_for("begin SIGTERM")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_signals_arrive_when_a_loop_takes_the_wake_up_descriptor(tmp_path, loop):
    with executing(tmp_path, "chained.py", "other-signal-after", loop) as program:
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")
        program.send_signal(signal.SIGUSR1)
        program.wait_for("own SIGUSR1")
        program.send_signal(signal.SIGINT)
        program.wait_for("begin SIGINT")
        assert program.begun() == ["SIGTERM", "SIGINT"]


@pytest.mark.parametrize("order", ["both", "last-first", "first-first", "none", "none-first-first"])
def test_two_installations_can_be_restored_in_any_order(tmp_path, order):
    heard = {"both": {"a", "b"}, "last-first": {"a"}, "first-first": {"b"}}.get(order, set())
    with executing(tmp_path, "two.py", order) as program:
        if order.startswith("none"):
            assert (program.word("is"), program.word("fd")) == ("True", "True")
        program.send_signal(signal.SIGTERM)
        program.wait_for("own")
        program.wait_for(f"byte {int(signal.SIGTERM)}")
        for who in heard:
            program.wait_for(f"{who} SIGTERM")
        assert {said.split()[0] for said in program.said if said.endswith("SIGTERM")} == heard
        assert len([said for said in program.said if said == "own"]) == 1


# --- the end that it would have had ---

ends = pytest.mark.parametrize(
    ("where", "by"),
    [
        (where, by)
        for where in ("plain", "loop", "uvloop")
        for by in ("main", "thread")
        if LONG or where == "loop" or (where == "plain") == (by == "main")
    ],
)


@ends
def test_raise_again_ends_the_program_by_sigterm(tmp_path, where, by):
    with executing(tmp_path, "again.py", where, by) as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGTERM
        assert program.said == ["ready", "begin SIGTERM", f"over {by == 'main'}"]


@ends
def test_raise_again_makes_sigint_a_keyboard_interrupt(tmp_path, where, by):
    with executing(tmp_path, "again.py", where, by) as program:
        program.send_signal(signal.SIGINT)
        assert program.wait() == -signal.SIGINT
        cancelled = [] if where == "plain" else ["cancelled"]
        expected = [
            "ready",
            "begin SIGINT",
            f"over {by == 'main'}",
            *cancelled,
            "KeyboardInterrupt",
        ]
        assert program.said[: len(expected)] == expected
        assert program.begun() == ["SIGINT"]


def test_an_ignored_signal_stays_ignored(tmp_path):
    with executing(tmp_path, "again.py", "ignored", "main") as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait() == 0
        assert program.begun() == []
        assert program.said[-1] == "went on"


# --- fork ---


@pytest.mark.parametrize("guard", [(), ("guard",)], ids=["alone", "guarded"])
@pytest.mark.parametrize("how", ["forked", "forked-in-thread"])
def test_a_forked_child_dies_at_once_and_its_parent_does_not_drain(tmp_path, how, guard):
    with executing(tmp_path, "forks.py", how, *guard) as program:
        os.kill(int(program.word("child")), signal.SIGTERM)
        assert program.word("ended") == str(-signal.SIGTERM)
        assert program.word("still") == "True"
        assert program.begun() == []
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")


def test_children_that_end_at_once_do_not_drain_their_parent(tmp_path):
    with executing(tmp_path, "forks.py", "forked-many") as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        program.send_signal(signal.SIGINT)
        program.wait_for("begin SIGINT")
        assert program.begun() == ["SIGINT"]


@pytest.mark.parametrize("guard", [(), ("guard",)], ids=["alone", "guarded"])
@pytest.mark.parametrize("how", ["process", "command"])
def test_processes_started_by_a_program_can_be_terminated(tmp_path, how, guard):
    with executing(tmp_path, "forks.py", how, *guard) as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        assert program.word("still") == "True"
        assert program.begun() == []


def test_a_forked_child_can_install_its_own(tmp_path):
    with executing(tmp_path, "forks.py", "anew") as program:
        assert program.word("ended") == "7"
        assert program.begun() == ["SIGTERM"]  # the child's


def test_a_forked_child_has_the_earlier_handler(tmp_path):
    with executing(tmp_path, "forks.py", "chained") as program:
        assert program.word("is") == "True"
        assert program.word("own") == "False"
        assert program.word("ended") == "0"
        assert program.begun() == []


def test_a_signal_to_a_child_does_not_reach_the_loop_of_its_parent(tmp_path):
    with executing(tmp_path, "forks.py", "in-loop") as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        program.wait_for("still")
        assert "loop" not in program.said
        assert program.begun() == []


# --- as PID 1 ---


@pytest.mark.usefixtures("_init")
@pytest.mark.parametrize(
    "where", ["lock", "loop", "uvloop", "callback"] if LONG else ["callback", "uvloop"]
)
def test_as_pid_1_a_signal_begins_a_drain(tmp_path, where):
    with executing(tmp_path, "busy.py", where, 60, before=AS_INIT) as program:
        program.signal_init(signal.SIGTERM)
        program.wait_for("begin SIGTERM")


@pytest.mark.usefixtures("_init")
@pytest.mark.parametrize("by", ["main", "thread"])
def test_as_pid_1_raise_again_ends_the_program(tmp_path, by):
    with executing(tmp_path, "again.py", "plain", by, before=AS_INIT) as program:
        program.signal_init(signal.SIGTERM)
        assert program.wait() == 128 + signal.SIGTERM
