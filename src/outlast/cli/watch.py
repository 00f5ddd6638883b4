"""Show a view once, or repeatedly (`--watch`) until Ctrl-C or until nothing more can change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from outlast.cli.output import console, document, print_message
from outlast.cli.stores import reading
from outlast.store.protocol import Store
from outlast.store.tolerant_rows import legible

if TYPE_CHECKING:
    from rich.text import Text

WATCH_SECONDS = 1.0
HOME = "\x1b[H"
REST_OF_LINE = "\x1b[K"
REST_OF_SCREEN = "\x1b[J"

T = TypeVar("T")


class View(NamedTuple, Generic[T]):
    """Define what a command reads from a store and how it shows it."""

    read: Callable[[Store], T]
    lines: Callable[[T], list[Text]]
    document: Callable[[T], Any]
    nothing: str
    """The message for a view without lines."""
    notes: Callable[[T], list[str]] = lambda _: []
    """Remarks on what was found. They go to stderr, or below the lines while watching."""
    is_final: Callable[[T], bool] = lambda _: False
    """Whether watching ends with what was found."""
    first_lines: int | None = None
    """How many of the first lines to keep on a screen that is too small, with the last lines below
    them. None: only the first lines, as many as fit.
    """


def print_view(address: str | None, view: View[T], *, watch: bool, as_json: bool) -> T:
    """Read an existing store and show the view as text or as a JSON document.

    While watching, each document is one line. Return what was found last.
    """
    with reading(address) as store:
        if not watch:
            found = _read(view, store)
            _once(view, found, as_json=as_json)
            return found
        on_screen = sys.stdout.isatty()
        while True:
            found = _read(view, store)
            if as_json:
                document(view.document(found), indent=None)
            elif on_screen:
                _redraw(_frame(view, found), view.first_lines)
            else:
                _print([*_frame(view, found), _line()])
            if view.is_final(found):
                return found
            time.sleep(WATCH_SECONDS)


def _read(view: View[T], store: Store) -> T:
    with legible("the store"):
        return view.read(store)


def _frame(view: View[T], found: T) -> list[Text]:
    """Return everything to draw after one read."""
    return [*(view.lines(found) or [_line(view.nothing)]), *map(_line, view.notes(found))]


def _once(view: View[T], found: T, *, as_json: bool) -> None:
    if as_json:
        document(view.document(found))
        return
    lines = view.lines(found)
    _print(lines)
    if not lines:
        print_message(view.nothing)
    for note in view.notes(found):
        print_message(note)


def _print(lines: list[Text]) -> None:
    out = console()
    for line in lines:
        out.print(line)
    out.file.flush()


def _redraw(lines: list[Text], first: int | None) -> None:
    """Draw one frame over the last one, in one write, so that nothing flickers or scrolls away."""
    from outlast.cli.grid import fitted

    out = console()
    height = max(2, out.height) - 1
    if len(lines) > height:
        more = len(lines) - height + 1
        keep = height - 1 if first is None else min(first, height - 1)
        cut = "… and" if first is None else "…"
        lines = [*lines[:keep], _line(f"{cut} {more} more lines"), *lines[keep + more :]]
    with out.capture() as frame:
        for line in lines:
            out.print(fitted(line, out.width))
    out.file.write(HOME + frame.get().replace("\n", f"{REST_OF_LINE}\n") + REST_OF_SCREEN)
    out.file.flush()


def _line(text: str = "") -> Text:
    from rich.text import Text

    return Text(text)
