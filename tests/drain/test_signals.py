"""Signals that are received, passed on, given back and undone, and the guard: real processes, real signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from programs_signals import WAIT_SECONDS, alive, executing, gone

import outlast
from outlast.drain import guard as guards
from outlast.drain.guard import ARM, MARGIN, STOP, _Count
from outlast.drain.signals import OWED_SECONDS, Signals, _Pair

pytestmark = pytest.mark.timeout(90)

AS_INIT = ("unshare", "-Urpf", "--kill-child", "--mount-proc")


# --- a signal is received ---


@pytest.mark.parametrize("guard", [(), (60,)], ids=["alone", "guarded"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "where", ["sleep", "lock", "sqlite", "loop", "callback", "uvloop", "uvloop-callback"]
)
def test_a_signal_begins_a_drain_wherever_the_main_thread_is(tmp_path, where, number, guard):
    with executing(tmp_path, "busy.py", where, *guard) as program:
        program.send(number)
        program.until(f"begin {number.name} outlast-signals")
        assert program.process.poll() is None
        assert program.begun() == [number.name]


def test_a_handler_that_runs_long_after_the_wake_up_is_no_second_signal(tmp_path):
    with executing(tmp_path, "busy.py", "sqlite-and-out") as program:
        program.send(signal.SIGINT)
        program.until("out")
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        assert program.begun() == ["SIGINT", "SIGTERM"]


@pytest.mark.parametrize("guard", [(), (60,)], ids=["alone", "guarded"])
def test_a_second_signal_is_a_second_call(tmp_path, guard):
    with executing(tmp_path, "busy.py", "loop", *guard) as program:
        program.send(signal.SIGINT)
        program.until("begin SIGINT")
        time.sleep(0.1)  # more than what makes two of them one
        program.send(signal.SIGINT)
        program.until("begin SIGINT", times=2)
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        assert program.begun() == ["SIGINT", "SIGINT", "SIGTERM"]


def test_what_comes_by_both_ways_is_one():
    for first, second in [("woken", "rung"), ("rung", "woken")]:
        pair = _Pair()
        assert getattr(pair, first)(100.0)
        assert not getattr(pair, second)(100.01)
        assert getattr(pair, first)(101.0)
        assert not getattr(pair, second)(101.01)


def test_a_way_that_fails_leaves_the_other():
    woken, rung = _Pair(), _Pair()
    assert [woken.woken(at) for at in (1.0, 1.01, 2.0, 9.0)] == [True, False, True, True]
    assert [rung.rung(at) for at in (1.0, 1.01, 2.0, 9.0)] == [True, False, True, True]


def test_one_handler_call_for_several_wake_ups_is_no_news():
    pair = _Pair()
    assert [pair.woken(1.0), pair.woken(2.0)] == [True, True]
    assert not pair.rung(30.0)
    assert pair.rung(31.0)


def test_a_slow_guard_does_not_make_two_of_one():
    pair = _Pair()
    assert pair.rung(1.0)
    assert pair.rung(1.2)
    assert [pair.woken(1.3), pair.woken(1.0 + OWED_SECONDS)] == [False, False]
    assert pair.woken(1.3 + OWED_SECONDS)


def test_only_the_main_thread_can_install(caplog):
    signals = Signals(lambda number, at: None)
    before = signal.getsignal(signal.SIGTERM)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(signals.install()))
    thread.start()
    thread.join()
    assert answers == [False]
    assert len(caplog.records) == 1
    assert "signals are only received in the main thread" in caplog.text
    assert "app.drain() still works" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is before
    signals.restore()


# --- who had it before, and who comes after ---


def test_the_handler_that_a_program_had_set_is_called(tmp_path):
    with executing(tmp_path, "chained.py", "handler-before") as program:
        assert program.word("had") == "True False"
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        program.until("own SIGTERM True")


def test_a_handler_that_a_program_sets_over_ours_works_and_we_still_hear(tmp_path):
    with executing(tmp_path, "chained.py", "handler-after") as program:
        assert program.word("had") == "True"
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        program.until("own SIGTERM True")


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("handler-after-is-kept", ["is True", "int True", "fd -1"]),
        ("descriptor-after-is-kept", ["is True"]),
        ("descriptor-closed-meanwhile", ["is True"]),
    ],
)
def test_only_what_is_still_ours_is_put_back(tmp_path, who, said):
    with executing(tmp_path, "chained.py", who) as program:
        assert program.ended() == 0
        assert program.said == [*said, "ready"]


def test_who_had_the_wake_up_descriptor_gets_every_byte(tmp_path):
    with executing(tmp_path, "chained.py", "descriptor-before") as program:
        program.send(signal.SIGTERM)
        program.until("byte SIGTERM")
        program.send(signal.SIGUSR1)
        program.until("byte SIGUSR1")
        assert program.begun() == ["SIGTERM"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loops_handlers_of_before_us_go_on(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-before", loop) as program:
        assert program.word("had") == "True False"
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        program.until("own SIGTERM")
        program.send(signal.SIGUSR1)
        program.until("own SIGUSR1")
        program.send(signal.SIGINT)
        program.until("begin SIGINT")
        assert [said for said in program.said if said.startswith("own")] == [
            "own SIGTERM False",
            "own SIGUSR1 False",
        ]
        assert program.begun() == ["SIGTERM", "SIGINT"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loops_handlers_are_as_before_when_we_have_restored(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-before-and-restored", loop) as program:
        program.send(signal.SIGTERM)
        program.until("own SIGTERM")
        time.sleep(0.1)
        assert program.begun() == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loops_handler_of_after_us_works(tmp_path, loop):
    with executing(tmp_path, "chained.py", "loop-after", loop) as program:
        assert program.word("had") == "True"
        program.send(signal.SIGTERM)
        program.until("own SIGTERM")
        if loop == "uvloop":  # asyncio's has taken both ways: the limit that signals.py states
            program.until("begin SIGTERM")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_loop_that_takes_the_wake_up_descriptor_leaves_us_the_handler(tmp_path, loop):
    with executing(tmp_path, "chained.py", "other-signal-after", loop) as program:
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")
        program.send(signal.SIGUSR1)
        program.until("own SIGUSR1")
        program.send(signal.SIGINT)
        program.until("begin SIGINT")
        assert program.begun() == ["SIGTERM", "SIGINT"]


@pytest.mark.parametrize("order", ["both", "last-first", "first-first", "none", "none-first-first"])
def test_two_of_them_can_be_restored_in_any_order(tmp_path, order):
    heard = {"both": {"a", "b"}, "last-first": {"a"}, "first-first": {"b"}}.get(order, set())
    with executing(tmp_path, "two.py", order) as program:
        if order.startswith("none"):
            assert (program.word("is"), program.word("fd")) == ("True", "True")
        program.send(signal.SIGTERM)
        program.until("own")
        program.until(f"byte {int(signal.SIGTERM)}")
        for who in heard:
            program.until(f"{who} SIGTERM")
        assert {said.split()[0] for said in program.said if said.endswith("SIGTERM")} == heard
        assert len([said for said in program.said if said == "own"]) == 1


# --- the end that it would have had ---


@pytest.mark.parametrize("by", ["main", "thread"])
@pytest.mark.parametrize("where", ["plain", "loop", "uvloop"])
def test_a_sigterm_that_is_raised_again_ends_the_program_by_it(tmp_path, where, by):
    with executing(tmp_path, "again.py", where, by) as program:
        program.send(signal.SIGTERM)
        assert program.ended() == -signal.SIGTERM
        assert program.said == ["ready", "begin SIGTERM", f"over {by == 'main'}"]


@pytest.mark.parametrize("by", ["main", "thread"])
@pytest.mark.parametrize("where", ["plain", "loop", "uvloop"])
def test_a_sigint_that_is_raised_again_is_a_keyboard_interrupt(tmp_path, where, by):
    with executing(tmp_path, "again.py", where, by) as program:
        program.send(signal.SIGINT)
        assert program.ended() == -signal.SIGINT
        cancelled = [] if where == "plain" else ["cancelled"]
        expected = ["ready", "begin SIGINT", f"over {by == 'main'}", *cancelled, "KeyboardInterrupt"]
        assert program.said[: len(expected)] == expected
        assert program.begun() == ["SIGINT"]


def test_a_signal_that_was_ignored_is_ignored(tmp_path):
    with executing(tmp_path, "again.py", "ignored", "main") as program:
        program.send(signal.SIGTERM)
        assert program.ended() == 0
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
        program.send(signal.SIGTERM)
        program.until("begin SIGTERM")


def test_a_child_that_is_ended_as_soon_as_it_is_there_is_no_drain(tmp_path):
    with executing(tmp_path, "forks.py", "forked-many") as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        program.send(signal.SIGINT)
        program.until("begin SIGINT")
        assert program.begun() == ["SIGINT"]


@pytest.mark.parametrize("guard", [(), ("guard",)], ids=["alone", "guarded"])
@pytest.mark.parametrize("how", ["process", "command"])
def test_processes_that_a_program_starts_can_be_terminated(tmp_path, how, guard):
    with executing(tmp_path, "forks.py", how, *guard) as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        assert program.word("still") == "True"
        assert program.begun() == []


def test_a_child_can_install_its_own(tmp_path):
    with executing(tmp_path, "forks.py", "anew") as program:
        assert program.word("ended") == "7"
        assert program.begun() == ["SIGTERM"]  # the child's


def test_a_child_has_the_handler_of_before_again(tmp_path):
    with executing(tmp_path, "forks.py", "chained") as program:
        assert program.word("is") == "True"
        assert program.word("own") == "False"
        assert program.word("ended") == "0"
        assert program.begun() == []


def test_a_childs_signal_does_not_reach_its_parents_loop(tmp_path):
    with executing(tmp_path, "forks.py", "in-loop") as program:
        assert program.word("ended") == str(-signal.SIGTERM)
        program.until("still")
        assert "loop" not in program.said
        assert program.begun() == []


# --- the guard ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["regex", "regex-in-thread", "sum", "sum-in-thread"])
def test_c_code_that_holds_the_gil_does_not_outlast_grace(tmp_path, where, number):
    grace = 1.5
    with executing(tmp_path, "busy.py", where, grace) as program:
        guard = int(program.word("guard"))
        time.sleep(0.2)  # until the GIL is held
        sent = program.send(number)
        assert program.ended() == -signal.SIGKILL
        seconds = time.monotonic() - sent
        assert seconds > grace - MARGIN - 0.01
        assert seconds < grace + 5, "generous: when it is to be killed is held by the test of the count"
        gone(guard)


@pytest.mark.parametrize("where", ["loop", "uvloop"])
def test_what_does_not_end_by_itself_is_killed_in_a_loop_too(tmp_path, where):
    with executing(tmp_path, "busy.py", where, 0.5) as program:
        program.send(signal.SIGTERM)
        assert program.ended() == -signal.SIGKILL
        assert program.begun() == ["SIGTERM"]


def test_the_count_ends_before_grace_does():
    count = _Count(30.0)
    assert count.hear(bytes((signal.SIGUSR1,)), 100.0) == [signal.SIGUSR1]
    assert count.kill_at is None
    assert count.hear(bytes((signal.SIGTERM, signal.SIGINT)), 100.0) == [signal.SIGTERM, signal.SIGINT]
    assert count.kill_at == 129.9
    count.hear(bytes((signal.SIGTERM,)), 110.0)
    assert count.kill_at == 129.9


def test_signals_between_the_bytes_of_a_message_are_signals():
    count = _Count(30.0)
    assert count.hear(bytes((ARM, 0x80, 0x80, signal.SIGUSR1, 0x80 | 7)), 100.0) == [signal.SIGUSR1]
    assert count.kill_at is None
    assert count.hear(bytes((0x80 | 104, STOP)), 100.0) == []
    assert count.kill_at == 101.0  # 7 << 7 | 104
    assert count.stopped


def test_a_guard_can_be_armed_without_a_signal(tmp_path):
    with executing(tmp_path, "guarded.py", "armed") as program:
        assert program.ended() == -signal.SIGKILL


def test_a_guard_that_is_stopped_kills_nobody_and_is_reaped(tmp_path):
    with executing(tmp_path, "guarded.py", "armed-and-stopped") as program:
        assert not Path(f"/proc/{program.word('guard')}").exists()
        time.sleep(0.6)
        assert program.process.poll() is None


@pytest.mark.parametrize("how", ["stopped", "died", "pipe", "no-spawn"])
def test_without_its_guard_a_program_still_hears_signals(tmp_path, how):
    with executing(tmp_path, "guarded.py", how, 0.5) as program:
        assert program.word("started") == ("False False" if how == "no-spawn" else "True True")
        for number in (signal.SIGTERM, signal.SIGINT):
            program.send(number)
            program.until(f"begin {number.name}")
        assert program.begun() == ["SIGTERM", "SIGINT"]
        if how == "stopped":
            assert program.word("armed") == "False"
        if how == "no-spawn":
            assert "no helper process: no more processes" in "".join(program.said)


def test_a_guard_can_be_stopped_after_its_signals(tmp_path):
    with executing(tmp_path, "guarded.py", "stopped-last") as program:
        assert not Path(f"/proc/{program.word('guard')}").exists()
        program.send(signal.SIGTERM)
        assert program.ended() == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_outlasts_signals_and_ends_with_its_worker(tmp_path, number):
    with executing(tmp_path, "guarded.py", "plain") as program:
        guard = int(program.word("guard"))
        os.kill(guard, number)
        assert os.getsid(guard) == guard
        time.sleep(0.2)
        assert alive(guard)
        program.send(signal.SIGKILL)
        program.ended()
        gone(guard)


def test_children_that_outlive_a_worker_do_not_keep_its_guard(tmp_path):
    with executing(tmp_path, "forks.py", "holding", "guard") as program:
        guard = int(program.word("guard"))
        children = [int(program.word("child")), int(program.word("command"))]
        try:
            assert alive(guard)
            program.send(signal.SIGKILL)
            program.ended()
            gone(guard)
            assert all(alive(child) for child in children)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def test_a_guard_holds_no_files_of_its_worker(tmp_path):
    with executing(tmp_path, "guarded.py", "open") as program:
        # What it reads while it starts is the interpreter's, and its own file.
        opened = {path for path in program.word("open").split() if not path.startswith(sys.base_prefix)}
        opened -= {guards.__file__}
        assert opened <= {"/dev/null", "pipe", "anon_inode", str(Path("/proc"))}, opened


def test_the_modules_are_light():
    code = """if True:
        import sys, types
        sys.modules["outlast"] = package = types.ModuleType("outlast")  # which imports what a program needs
        package.__path__ = sys.argv[1:]
        import outlast.drain.signals, outlast.drain.deadline
        print(*sys.modules)
    """
    folder = str(Path(outlast.__file__).parent)
    said = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    assert not {"asyncio", "subprocess", "ctypes", "sqlite3", "pydantic"} & set(said.stdout.split())


# --- as PID 1 ---


@pytest.fixture(scope="module")
def init():
    """A program's outer pid, which is PID 1 inside. Where the kernel refuses, these promises are not tested, and it says so."""
    try:
        done = subprocess.run(
            [*AS_INIT, "true"], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
    except FileNotFoundError:
        pytest.skip("no `unshare` here: nothing was tested as PID 1")
    if done.returncode:
        pytest.skip(f"no pid namespace may be made here, nothing was tested as PID 1: {done.stderr.strip()}")

    def inner(program) -> int:
        return int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()[0])

    return inner


@pytest.mark.parametrize("where", ["lock", "loop", "uvloop", "callback"])
def test_as_pid_1_a_signal_is_received(tmp_path, init, where):
    with executing(tmp_path, "busy.py", where, 60, before=AS_INIT) as program:
        os.kill(init(program), signal.SIGTERM)
        program.until("begin SIGTERM")


@pytest.mark.parametrize("where", ["regex-in-thread", "sum", "sleep"])
def test_as_pid_1_nothing_outlasts_grace_either(tmp_path, init, where):
    with executing(tmp_path, "busy.py", where, 1.0, before=AS_INIT) as program:
        time.sleep(0.2)
        os.kill(init(program), signal.SIGTERM)
        assert program.ended() == 63


@pytest.mark.parametrize("by", ["main", "thread"])
def test_as_pid_1_a_signal_raised_again_ends_it(tmp_path, init, by):
    with executing(tmp_path, "again.py", "plain", by, before=AS_INIT) as program:
        os.kill(init(program), signal.SIGTERM)
        assert program.ended() == 128 + signal.SIGTERM
