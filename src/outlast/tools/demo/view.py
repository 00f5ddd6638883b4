"""Show the demo: a board on a terminal that is large enough, lines elsewhere.

Both draw the same state.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, NamedTuple

from outlast.tools.demo.state import Event, Mood, RunState, State, WorkerState

WIDTH = 78
BOARD_COLUMNS, BOARD_ROWS = 78, 22
"""The size that a board needs."""
FRAME_SECONDS = 0.1
LINE_SECONDS = 5.0
EVENTS_SHOWN = 9
STYLES = {
    "plain": "",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "dim": "dim",
    "title": "bold",
}
MOODS: dict[str, Mood] = {"working": "good", "draining": "warn", "gone": "dim", "starting": "dim"}


class Part(NamedTuple):
    text: str
    mood: str = "plain"


Line = tuple[Part, ...]


class Frame(NamedTuple):
    """The board at one moment."""

    at: float
    events: int
    """How many events there were."""
    lines: list[Line]


class View:
    """Show nothing."""

    def show(self, state: State) -> None:
        """Show the current state. Called often."""

    def close(self) -> None:
        """Restore the terminal."""

    def tell(self, lines: Sequence[Line]) -> None:
        """Print the summary, after `close`."""


class Lines(View):
    """Print each event as it happens, and the state after a while without events."""

    def __init__(self, file: Any = None) -> None:
        self._file = sys.stdout if file is None else file
        self._shown = 0
        self._last = time.monotonic()

    def show(self, state: State) -> None:
        for one in state.events[self._shown :]:
            self._print(event_line(one))
        if self._shown == len(state.events) and time.monotonic() > self._last + LINE_SECONDS:
            doing = (
                f"{run.id} {run.doing or run.state}" for run in state.runs if run.state != "done"
            )
            words = shorten("; ".join(doing), WIDTH - len("123.4 s  ()"), placeholder=" …")
            self._print(f"{state.seconds:5.1f} s  ({words})")
        self._shown = len(state.events)

    def tell(self, lines: Sequence[Line]) -> None:
        self._print(f"\n{plain(lines)}")

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=self._file, flush=True)


class Board(View):
    """Redraw one board on a terminal. It leaves nothing behind: the summary has what happened."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(markup=False, highlight=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._due = 0.0

    def show(self, state: State) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + FRAME_SECONDS
            self._live.update(rich_text(board(state)), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def tell(self, lines: Sequence[Line]) -> None:
        self._console.print(rich_text(lines), end="", soft_wrap=True)


class Recorded(View):
    """Forward to another view, and record every frame of the board."""

    def __init__(self, shown: View) -> None:
        self._shown = shown
        self.frames: list[Frame] = []

    def show(self, state: State) -> None:
        self._shown.show(state)
        lines = board(state)
        # Compare everything but the clock.
        if not self.frames or lines[1:] != self.frames[-1].lines[1:]:
            self.frames.append(Frame(state.seconds, len(state.events), lines))

    def close(self) -> None:
        self._shown.close()

    def tell(self, lines: Sequence[Line]) -> None:
        self._shown.tell(lines)


def view_of(*, as_json: bool) -> View:
    """Return the view that fits stdout. With --json, print lines to stderr."""
    if as_json:
        return Lines(sys.stderr)
    quiet = (
        "NO_COLOR" in os.environ
        or "CI" in os.environ
        or os.environ.get("TERM") in ("dumb", "unknown")
    )
    if quiet or not sys.stdout.isatty():
        return Lines()
    size = os.get_terminal_size(sys.stdout.fileno())
    has_room = size.columns >= BOARD_COLUMNS and size.lines >= BOARD_ROWS
    return Board() if has_room and _can_write("●◐○x▸…") else Lines()


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def board(state: State) -> list[Line]:
    """Draw one frame of at most BOARD_ROWS lines of WIDTH characters."""
    clock = f"{state.seconds:.0f} s"
    title = "outlast demo: a research agent, two workers, two signals"
    lines: list[Line] = [(Part(title, "title"), Part(clock.rjust(WIDTH - len(title)), "dim")), ()]
    lines += [_worker(one) for one in state.workers]
    lines += [() for _ in range(3 - len(state.workers))]
    lines.append(())
    lines += [_run(one) for one in state.runs]
    lines += [() for _ in range(3 - len(state.runs))]
    count = "message" if state.messages == 1 else "messages"
    lines += [
        (),
        (Part(f"  outbox {state.messages} {count}    model {state.tokens} tokens", "dim"),),
        (),
    ]
    for one in state.events[-EVENTS_SHOWN:]:
        lines.append((Part(f"{one.at:6.1f} s  ", "dim"), Part(one.text[: WIDTH - 10], one.mood)))
    lines += [() for _ in range(EVENTS_SHOWN - len(state.events))]
    return lines


def _worker(one: WorkerState) -> Line:
    mark = {"working": "●", "draining": "◐", "starting": "○", "gone": "x"}[one.state]
    holds = f"holds {', '.join(one.runs)}" if one.runs else ""
    mood = MOODS[one.state]
    return (
        Part(f"  {mark} {one.name}  {one.state:<9}", mood),
        Part(f" process {one.pid:<8} {holds}"),
    )


def _run(one: RunState) -> Line:
    mood = (
        "good" if one.state == "done" else "dim" if one.state in ("waiting", "queued") else "plain"
    )
    steps = "■" * one.steps + ("▸" if one.doing else "")
    return (
        Part(f"  {one.id:<9} "),
        Part(f"{steps:<12} ", "good"),
        Part((one.doing or one.state)[:50], mood),
    )


def event_line(one: Event) -> str:
    """Format an event as a line."""
    return f"{one.at:5.1f} s  {one.text}"


def plain(lines: Sequence[Line]) -> str:
    """Return only the text."""
    return "\n".join("".join(part.text for part in line).rstrip() for line in lines)


def rich_text(lines: Sequence[Line]) -> Any:
    """Return styled text for a terminal."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    for line in lines:
        for part in line:
            text.append(part.text, style=STYLES[part.mood])
        text.append("\n")
    return text
