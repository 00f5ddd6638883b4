"""Show a view once, or repeatedly (`--watch`) until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from outlast.cli.output import console, document, say
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

    look: Callable[[Store], T]
    lines: Callable[[T], list[Text]]
    document: Callable[[T], Any]
    nothing: str
    """The message for a view without lines."""


def shown(address: str | None, view: View[T], *, watch: bool, as_json: bool) -> None:
    """Read an existing store and show the view as text or as a JSON document.

    While watching, each document is one line.
    """
    with reading(address) as store:
        if not watch:
            _once(view, _look(view, store), as_json=as_json)
            return
        on_screen = sys.stdout.isatty()
        while True:
            found = _look(view, store)
            if as_json:
                document(view.document(found), indent=None)
            elif on_screen:
                _redraw(view.lines(found) or [_line(view.nothing)])
            else:
                _print([*(view.lines(found) or [_line(view.nothing)]), _line()])
            time.sleep(WATCH_SECONDS)


def _look(view: View[T], store: Store) -> T:
    with legible("the store"):
        return view.look(store)


def _once(view: View[T], found: T, *, as_json: bool) -> None:
    if as_json:
        document(view.document(found))
        return
    lines = view.lines(found)
    _print(lines)
    if not lines:
        say(view.nothing)


def _print(lines: list[Text]) -> None:
    out = console()
    for line in lines:
        out.print(line)
    out.file.flush()


def _redraw(lines: list[Text]) -> None:
    """Draw one frame over the last one, in one write, so that nothing flickers or scrolls away."""
    from outlast.cli.grid import fitted

    out = console()
    height = max(2, out.height) - 1
    if len(lines) > height:
        more = len(lines) - height + 1
        lines = [*lines[: height - 1], _line(f"… and {more} more lines")]
    with out.capture() as frame:
        for line in lines:
            out.print(fitted(line, out.width))
    out.file.write(HOME + frame.get().replace("\n", f"{REST_OF_LINE}\n") + REST_OF_SCREEN)
    out.file.flush()


def _line(text: str = "") -> Text:
    from rich.text import Text

    return Text(text)
