"""How the demo is drawn: a board where there is room for one, plain lines everywhere else."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from demo_tools import PACE, clean

from outlast.demo.scene import Hand, Happening, Scene, Work
from outlast.demo.view import BOARD_ROWS, WIDTH, board, plain

WHICH = "from outlast.demo.view import view_of; view = view_of(as_json=False); view.close(); print(type(view).__name__)"
DEMO = ["-P", "-m", "outlast", "demo", "--pace", PACE]


def in_terminal(
    words: list[str], columns: int, rows: int, folder, resize: bool = False, **env: str
) -> tuple[int, str]:
    """What a program writes on a terminal of that size, and its exit code."""
    leader, follower = pty.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(follower, termios.TIOCSWINSZ, size)
    process = subprocess.Popen(
        [sys.executable, *words], stdin=follower, stdout=follower, stderr=follower, cwd=folder,
        env=clean(TERM="xterm-256color", **env), start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    said, until = b"", time.monotonic() + 100
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
            if resize and b"begins on A" in said:
                resize = False
                fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 15, 50, 0, 0))
                os.kill(process.pid, signal.SIGWINCH)
        return process.wait(timeout=20), said.decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(leader)


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
    words = ["-c", f"import os; os.environ.update({ ({'TERM': terminal} if terminal else {}) }); {WHICH}"]
    code, said = in_terminal(words, columns, rows, tmp_path, **env)
    assert code == 0, said
    assert said.split()[-1].endswith(view)


def test_on_a_terminal_it_is_a_board_that_gives_the_terminal_back_and_bears_a_resize(tmp_path):
    code, said = in_terminal(DEMO, 100, 30, tmp_path, resize=True)
    assert code == 0, said
    assert "outlast demo: a research agent" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")  # the cursor is back
    end = said[said.rindex("What happened") :]
    assert "each once" in end
    assert "outlast show bees --store sqlite:///outlast-demo.db" in end


def test_in_a_small_terminal_without_colour_it_is_text(tmp_path):
    code, said = in_terminal(DEMO, 40, 10, tmp_path, NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert code == 0, said
    assert "\x1b" not in said
    assert said.isascii()
    assert "\\u" not in said
    assert "each once" in said


def test_a_board_fits_however_much_happens():
    hands = [
        Hand(name, state, 4_194_304, ("glaciers", "tides"))
        for name, state in zip("ABC", ("draining", "gone", "starting"), strict=True)
    ]
    works = [Work("glaciers", "running", 12, "searches: " + "w" * 90)] * 3
    many = [Happening(float(at), "h" * 90) for at in range(30)]
    for happenings in ([], many[:1], many):
        lines = plain(board(Scene(100.0, hands, works, 7, 500, happenings))).split("\n")
        assert len(lines) <= BOARD_ROWS
        assert all(len(line) <= WIDTH for line in lines)
