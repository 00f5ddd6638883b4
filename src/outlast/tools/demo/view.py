"""Show the demo: as a board on a terminal that is large enough, elsewhere as lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text
from rich.theme import Theme

CAPTION = (
    "A research agent on three workers. A gets SIGTERM in the middle of a tool call, B is killed "
    "in the middle of a streamed answer, and C finishes every run."
)
TITLE = "outlast demo: a research agent on three workers"
WIDTH, BOARD_ROWS = 78, 22
"""The size of the terminal that a board needs."""
LINE_SECONDS = 5.0
"""After how long without an event a line says what the runs are doing."""
EVENTS_SHOWN = 9
STYLES = {"good": "green", "warn": "yellow", "bad": "bold red", "quiet": "dim", "title": "bold"}
WORKER_STATES = {
    "starting": ("○", "quiet"),
    "working": ("●", "good"),
    "draining": ("◐", "warn"),
    "exited": ("x", "quiet"),
    "killed": ("x", "bad"),
}
"""The mark and the style of each state."""


class Event(NamedTuple):
    at: float
    """Seconds since the beginning."""
    text: str
    style: str = "plain"


@dataclass
class State:
    """One moment of the demo."""

    seconds: float = 0.0
    workers: list[Text] = field(default_factory=list)
    runs: list[Text] = field(default_factory=list)
    doing: str = ""
    """What each unfinished run is doing."""
    messages: int = 0
    tokens: int = 0
    events: list[Event] = field(default_factory=list)


class Lines:
    """Print each event as it happens, and what the runs do if nothing happened for a while."""

    def __init__(self, file: Any = None) -> None:
        self._file = sys.stdout if file is None else file
        self._events_count = 0
        self._last = time.monotonic()

    def show(self, state: State) -> None:
        """Show the current state. Called often."""
        new = state.events[self._events_count :]
        self._events_count = len(state.events)
        self.print([event_line(event) for event in new])
        if time.monotonic() > self._last + LINE_SECONDS:
            doing = shorten(state.doing, WIDTH - len("123.4 s  ()"), placeholder=" ...")
            self.print([Text(f"{state.seconds:5.1f} s  ({doing})")])

    def print(self, lines: Sequence[Text]) -> None:
        for one in lines:
            self._last = time.monotonic()
            print(one.plain, file=self._file, flush=True)

    def close(self) -> None:
        """Restore the terminal."""


class Board(Lines):
    """Redraw one board on a terminal. When closed, print all events instead of it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._events: list[Event] = []

    def show(self, state: State) -> None:
        self._events = state.events
        self._live.update(Group(*board(state)), refresh=True)

    def print(self, lines: Sequence[Text]) -> None:
        for one in lines:
            self._console.print(one, soft_wrap=True)

    def close(self) -> None:
        self._live.stop()
        self.print([event_line(event) for event in self._events])


def view_of(*, as_json: bool) -> Lines:
    """Return the view that fits stdout. With --json, print lines to stderr."""
    if as_json:
        return Lines(sys.stderr)
    if not sys.stdout.isatty():
        return Lines()
    theme = Theme({"plain": "", **STYLES})
    console = Console(theme=theme, markup=False, highlight=False, emoji=False)
    # Rich would ask stdin for the size first.
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    has_room = columns >= WIDTH and rows >= BOARD_ROWS
    is_plain = console.no_color or console.is_dumb_terminal or "CI" in os.environ
    has_marks = console.encoding.startswith("utf")
    return Board(console) if has_room and has_marks and not is_plain else Lines()


def board(state: State, events: int = EVENTS_SHOWN) -> list[Text]:
    """Draw one frame of at most BOARD_ROWS lines of WIDTH characters."""
    clock = f"{state.seconds:.0f} s".rjust(WIDTH - len(TITLE))
    count = "message" if state.messages == 1 else "messages"
    return [
        line((TITLE, "title"), (clock, "quiet")),
        line(),
        *_padded(state.workers, 3),
        line(),
        *_padded(state.runs, 3),
        line(),
        line((f"  outbox: {state.messages} {count}    model: {state.tokens} tokens", "quiet")),
        line(),
        *_padded([event_line(event, WIDTH) for event in state.events[-events:]], events),
    ]


def _padded(lines: list[Text], count: int) -> list[Text]:
    return [*lines, *(line() for _ in range(count - len(lines)))]


def line(*parts: tuple[str, str]) -> Text:
    """Return a line made of texts, each with its style."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def event_line(event: Event, width: int | None = None) -> Text:
    clock = f"{event.at:5.1f} s  "
    text = event.text if width is None else event.text[: width - len(clock)]
    return line((clock, "quiet"), (text, event.style))


def worker_line(name: str, state: str, pid: int, runs: Sequence[str] = ()) -> Text:
    mark, style = WORKER_STATES[state]
    holds = f"holds {', '.join(runs)}" if runs else ""
    what = f" process {pid:<8} {holds}"
    return line((f"  {mark} {name}  {state:<9}", style), (what, "plain"))


def run_line(id: str, status: str, steps: int, doing: str) -> Text:
    """Return the line of a run: a square for each recorded step, and what it does now."""
    style = {"done": "good", "waiting": "quiet", "queued": "quiet"}.get(status, "plain")
    squares = "■" * steps + ("▸" if doing else "")
    what = (doing or status)[:50]
    return line((f"  {id:<9} ", "plain"), (f"{squares:<12} ", "good"), (what, style))
