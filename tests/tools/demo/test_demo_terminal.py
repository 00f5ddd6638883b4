"""The demo draws a board where there is room for one, and prints lines elsewhere."""

import fcntl
import os
import pickle
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_tools import DEMO_SECONDS, PACE, QUICK_DEMO, clean

from outlast.tools.demo.view import BOARD_ROWS, WIDTH, Event, State, board, run_line, worker_line
from support.spawned import spawn
from support.waiting import WAIT_SECONDS

WHICH = "from outlast.tools.demo.view import view_of; view = view_of(as_json=False); view.close(); print(type(view).__name__)"
DEMO = ["-P", "-c", QUICK_DEMO, "demo", "--pace", PACE]
Act = Callable[[int, int], None]


def in_terminal(
    words: list[str],
    columns: int,
    rows: int,
    folder: Path,
    *,
    at: bytes = b"",
    then: Act = lambda *_: None,
    fork: bool = False,
    **env: str,
) -> tuple[int, str]:
    """Return the exit code of a program, and what it writes on a terminal of that size.

    When it has written `at`, call `then` with its pid and the terminal.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environ = clean(TERM="xterm-256color", **env)
    if fork:
        process = spawn(
            [sys.executable, "-u", *words],
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env=environ,
        )
    else:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            cwd=folder,
            env=environ,
            start_new_session=True,
        )
    os.close(follower)
    said, until = b"", time.monotonic() + DEMO_SECONDS
    try:
        while time.monotonic() < until:
            if not select.select([leader], [], [], 0.2)[0]:
                continue
            try:
                more = os.read(leader, 65_536)
            except OSError:  # all of its other ends are closed
                break
            if not more:
                break
            said += more
            if at and at in said:
                at = b""
                then(process.pid, leader)
        return process.wait(timeout=WAIT_SECONDS), said.decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(leader)


def resize(pid: int, terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 15, 50, 0, 0))
    os.kill(pid, signal.SIGWINCH)


def resize_and_interrupt(pid: int, terminal: int) -> None:
    resize(pid, terminal)
    os.kill(pid, signal.SIGINT)


@pytest.mark.parametrize(
    ("columns", "rows", "env", "view"),
    [
        (80, 24, {}, "Board"), (200, 50, {}, "Board"), (60, 15, {}, "Lines"), (200, 15, {}, "Lines"), (40, 50, {}, "Lines"),
        (80, 24, {"NO_COLOR": "1"}, "Lines"), (80, 24, {"CI": "true"}, "Lines"), (80, 24, {"CI": "true", "FORCE_COLOR": "1"}, "Lines"),
        (80, 24, {"TERM": "dumb"}, "Lines"), (80, 24, {"PYTHONIOENCODING": "ascii"}, "Lines"),
    ],
)  # fmt: skip
def test_a_board_is_drawn_where_there_is_room_and_colour(tmp_path, columns, rows, env, view):
    terminal = env.pop("TERM", None)
    words = [
        "-c",
        f"import os; os.environ.update({ ({'TERM': terminal} if terminal else {}) }); {WHICH}",
    ]
    code, said = in_terminal(
        words, columns, rows, tmp_path, fork="PYTHONIOENCODING" not in env, **env
    )
    assert code == 0, said
    assert said.split()[-1].endswith(view)


def test_a_board_gives_the_terminal_back_when_it_is_interrupted(tmp_path):
    code, said = in_terminal(DEMO, 100, 30, tmp_path, at=b"starts on A", then=resize_and_interrupt)
    assert code == 130, said
    assert "outlast demo: a research agent" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), "the cursor is back"
    assert "Traceback" not in said


SIZES = [(100, 30, {}), (40, 10, {"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"})]
REPLAY = """
import os, pickle, sys, time
import outlast.tools.demo.scenario
from outlast.cli import main
from outlast.tools.demo.view import State

with open(sys.argv[1], "rb") as file:
    facts = pickle.load(file)

def run_scenario(path, show, *, pace):
    size = os.get_terminal_size(2)
    for number, event in enumerate(facts.events, start=1):
        state = State(seconds=event.at, events=facts.events[:number])
        show(state)
        while "starts on A" in event.text and os.get_terminal_size(2) == size:
            time.sleep(0.01)
            show(state)
    return facts

outlast.tools.demo.scenario.run_scenario = run_scenario
main(["demo"])
"""
"""`outlast demo`, which shows the events of an earlier demo. It waits in the middle until the terminal has another size."""


def assert_ends_with_the_claims(code: int, said: str, env: dict[str, str]) -> None:
    assert code == 0, said
    assert "sent exactly once" in said[said.rindex("The demo checked 7 claims") :]
    if env:
        assert said.isascii() and "\x1b" not in said and "\\u" not in said
    else:
        assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), "the cursor is back"
        assert "outlast show bees --store sqlite:///outlast-demo.db" in said


@pytest.mark.parametrize(("columns", "rows", "env"), SIZES)
def test_replayed_demo_ends_with_the_claims_on_a_terminal_of_any_size(
    tmp_path, good, columns, rows, env
):
    (tmp_path / "facts").write_bytes(pickle.dumps(good))
    words = ["-c", REPLAY, str(tmp_path / "facts")]
    code, said = in_terminal(words, columns, rows, tmp_path, at=b"starts on A", then=resize, **env)
    assert_ends_with_the_claims(code, said, env)


@pytest.mark.extended
@pytest.mark.parametrize(("columns", "rows", "env"), SIZES)
def test_demo_ends_with_the_claims_on_a_terminal_of_any_size(tmp_path, columns, rows, env):
    code, said = in_terminal(DEMO, columns, rows, tmp_path, at=b"starts on A", then=resize, **env)
    assert_ends_with_the_claims(code, said, env)


def test_a_board_fits_however_much_happens():
    workers = [
        worker_line(name, state, 4_194_304, ("glaciers", "tides"))
        for name, state in zip("ABC", ("draining", "killed", "starting"), strict=True)
    ]
    runs = [run_line("glaciers", "running", 12, "searching: " + "w" * 90)] * 3
    many = [Event(float(at), "h" * 90) for at in range(30)]
    for events in ([], many[:1], many):
        state = State(100.0, workers, runs, messages=7, tokens=500, events=events)
        lines = board(state)
        assert len(lines) <= BOARD_ROWS
        assert all(len(line.plain) <= WIDTH for line in lines)
