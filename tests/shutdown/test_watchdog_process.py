"""The guard, a helper process that kills its worker when nothing in Python can run: real processes, real signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs_signals import AS_INIT, LONG, _init, executing  # noqa: F401 - a fixture

import outlast
from outlast.shutdown import watchdog as guards
from outlast.shutdown.watchdog import ARM, MARGIN, STOP, _Count
from support.processes import is_running, wait_until_gone
from support.waiting import WAIT_SECONDS


@pytest.mark.parametrize(
    ("where", "number"),
    [
        (where, number)
        for where in ("regex", "regex-in-thread", "sum", "sum-in-thread")
        for number in (signal.SIGTERM, signal.SIGINT)
        if LONG or (where, number) in {("regex", signal.SIGTERM), ("sum-in-thread", signal.SIGINT)}
    ],
)
def test_the_guard_kills_c_code_that_holds_the_gil_when_grace_ends(tmp_path, where, number):
    """The test of the count says when exactly."""
    grace = 0.5
    with executing(tmp_path, "busy.py", where, grace) as program:
        guard = int(program.word("guard"))
        program.wait_until_busy()  # it holds the GIL
        sent = time.monotonic()
        program.send_signal(number)
        assert program.wait() == -signal.SIGKILL
        assert time.monotonic() - sent > grace - MARGIN - 0.01
        wait_until_gone(guard)


@pytest.mark.parametrize("where", ["loop", "uvloop"])
def test_the_guard_kills_a_program_with_a_loop_when_grace_ends(tmp_path, where):
    with executing(tmp_path, "busy.py", where, 0.3) as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGKILL


def test_the_guard_kills_shortly_before_grace_ends():
    count = _Count(30.0)
    assert count.receive(bytes((signal.SIGUSR1,)), 100.0) == [signal.SIGUSR1]
    assert count.kill_at is None
    assert count.receive(bytes((signal.SIGTERM, signal.SIGINT)), 100.0) == [
        signal.SIGTERM,
        signal.SIGINT,
    ]
    assert count.kill_at == 129.9
    count.receive(bytes((signal.SIGTERM,)), 110.0)
    assert count.kill_at == 129.9


def test_signals_between_the_bytes_of_a_message_are_passed_on():
    count = _Count(30.0)
    assert count.receive(bytes((ARM, 0x80, 0x80, signal.SIGUSR1, 0x80 | 7)), 100.0) == [
        signal.SIGUSR1
    ]
    assert count.kill_at is None
    assert count.receive(bytes((0x80 | 104, STOP)), 100.0) == []
    assert count.kill_at == 101.0  # 7 << 7 | 104
    assert count.stopped


def test_a_guard_can_be_armed_without_a_signal(tmp_path):
    with executing(tmp_path, "guarded.py", "armed") as program:
        assert program.wait() == -signal.SIGKILL


def test_a_stopped_guard_does_not_kill_and_is_reaped(tmp_path):
    with executing(tmp_path, "guarded.py", "armed-and-stopped") as program:
        assert not Path(f"/proc/{program.word('guard')}").exists()
        program.send_signal(signal.SIGTERM)
        program.wait_for("begin SIGTERM")


@pytest.mark.parametrize("how", ["stopped", "died", "pipe", "no-spawn"])
def test_signals_arrive_without_the_guard(tmp_path, how):
    with executing(tmp_path, "guarded.py", how, 0.5) as program:
        assert program.word("started") == ("False False" if how == "no-spawn" else "True True")
        for number in (signal.SIGTERM, signal.SIGINT):
            program.send_signal(number)
            program.wait_for(f"begin {number.name}")
        assert program.begun() == ["SIGTERM", "SIGINT"]
        if how == "stopped":
            assert program.word("armed") == "False"
        if how == "no-spawn":
            assert "No watchdog process could be started: no more processes" in program.errors


def test_a_guard_can_be_stopped_after_its_signals(tmp_path):
    with executing(tmp_path, "guarded.py", "stopped-last") as program:
        assert not Path(f"/proc/{program.word('guard')}").exists()
        program.send_signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGTERM


def test_a_guard_ignores_signals_and_ends_with_its_worker(tmp_path):
    with executing(tmp_path, "guarded.py", "plain") as program:
        guard = int(program.word("guard"))
        ignored = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        # The kernel discards an ignored signal when it is sent.
        program.wait_until(lambda: ignored_signals(guard).issuperset(ignored))
        for number in ignored:
            os.kill(guard, number)
        assert os.getsid(guard) == guard
        assert is_running(guard)
        program.send_signal(signal.SIGKILL)
        program.wait()
        wait_until_gone(guard)


def test_children_that_outlive_a_worker_do_not_keep_its_guard(tmp_path):
    with executing(tmp_path, "forks.py", "holding", "guard") as program:
        guard = int(program.word("guard"))
        children = [int(program.word("child")), int(program.word("command"))]
        try:
            assert is_running(guard)
            program.send_signal(signal.SIGKILL)
            program.wait()
            wait_until_gone(guard)
            assert all(is_running(child) for child in children)
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


def test_a_guard_holds_no_files_of_its_worker(tmp_path):
    with executing(tmp_path, "guarded.py", "open") as program:
        # While it starts, the interpreter reads its own files and shared libraries.
        opened = {
            path
            for path in program.word("open").split()
            if not path.startswith(sys.base_prefix) and ".so" not in Path(path).suffixes
        }
        opened -= {guards.__file__}
        assert opened <= {"/dev/null", "pipe", "anon_inode", str(Path("/proc"))}, opened


def test_signals_and_deadline_import_little():
    code = """if True:
        import sys, types
        sys.modules["outlast"] = package = types.ModuleType("outlast")  # which imports what a program needs
        package.__path__ = sys.argv[1:]
        import outlast.shutdown.signal_handlers, outlast.shutdown.exit_timer
        print(*sys.modules)
    """
    folder = str(Path(outlast.__file__).parent)
    said = subprocess.run(
        [sys.executable, "-c", code, folder],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert not {"asyncio", "subprocess", "ctypes", "sqlite3", "pydantic"} & set(said.stdout.split())


def ignored_signals(pid: int) -> set[int]:
    """Return the numbers of the signals that a process ignores."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


# --- as PID 1 ---


@pytest.mark.usefixtures("_init")
@pytest.mark.parametrize(
    "where",
    [
        "regex-in-thread",
        pytest.param("sum", marks=pytest.mark.extended),
        pytest.param("sleep", marks=pytest.mark.extended),
    ],
)
def test_as_pid_1_a_program_ends_when_grace_ends(tmp_path, where):
    with executing(tmp_path, "busy.py", where, 0.5, before=AS_INIT) as program:
        if where != "sleep":
            program.wait_until_busy(program.init)
        program.signal_init(signal.SIGTERM)
        assert program.wait() == 63
