"""Write results and documents to stdout, and everything else a person reads to stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from outlast.cli.exit_codes import INTERRUPTED, code_of
from outlast.cli.text import one_line, readable
from outlast.codec.documents import in_json
from outlast.errors import Backpressure, OutlastError, UnknownEffect
from outlast.errors.explained import EXPLAIN

if TYPE_CHECKING:
    from rich.console import Console


FACTS: dict[type[OutlastError], tuple[str, ...]] = {
    Backpressure: ("queue", "depth", "limit"),
    UnknownEffect: ("there",),
}
"""The attributes of errors that the JSON document adds to their message."""


def document(value: Any, indent: int | None = 2) -> None:
    """Print one JSON document to stdout."""
    value = in_json(value)
    text = readable(value, indent)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        import json

        text = json.dumps(value, indent=indent).replace("\x7f", "\\u007f")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_message(message: str) -> None:
    """Print one line to stderr. Escapes control characters, so the caller need not."""
    print(f"outlast: {one_line(message)}", file=sys.stderr, flush=True)


def console() -> Console:
    """Return a console on stdout for people.

    Text is never interpreted or wrapped, and colour appears only where the terminal wants it.
    """
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Report an OutlastError of the wrapped command without a traceback.

    Print its message and where to read more, and exit with its code.
    """
    try:
        yield
    except OutlastError as error:
        if as_json:
            document(error_document(error))
        print_error(error)
        raise typer.Exit(code_of(error)) from None
    except KeyboardInterrupt:
        print_message("interrupted.")
        raise typer.Exit(INTERRUPTED) from None


def print_error(error: OutlastError) -> None:
    print_message(error_message(error))
    print_message(where_explained(error.explained_as))


def error_document(error: OutlastError) -> dict[str, Any]:
    """Return an error as a JSON document."""
    facts = {name: getattr(error, name) for name in FACTS.get(type(error), ())}
    described = {
        "type": type(error).__name__,
        "message": error_message(error),
        "exit_code": code_of(error),
    }
    return {"error": {**described, "explain": error.explained_as, **facts}}


def where_explained(name: str) -> str:
    """Return the line that follows an error and names its explanation."""
    return f"For more, run `{EXPLAIN} {name}`."


def error_message(error: OutlastError) -> str:
    """Return an error's message for people."""
    return _unknown_effect(error) if isinstance(error, UnknownEffect) else str(error)


def _unknown_effect(error: UnknownEffect) -> str:
    """Word an UnknownEffect with the commands of the command line."""
    there = ", ".join(error.there)
    if len(error.there) > 1:
        return (
            f"several effects of run {error.id!r} wait for a decision, and {error.effect!r} is "
            f"not the place of one. Name one by its place: {there}."
        )
    does = (
        f"This one does: {there}"
        if there
        else f"`outlast show {quote(error.id)}` shows what it waits for"
    )
    return f"no effect {error.effect!r} of run {error.id!r} waits for a decision. {does}."


def write_whole(path: Path, text: str) -> None:
    """Replace the file with `text`, or raise OSError and leave it as it was.

    Touches no other file except `.NAME.new` beside it.
    """
    fresh = path.with_name(f".{path.name}.new")
    # Left by a killed process, or a symlink planted there, which "x" does not follow either.
    fresh.unlink(missing_ok=True)
    try:
        with fresh.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def obey_signals() -> None:
    """Treat SIGINT, SIGTERM and SIGHUP like Ctrl-C, whatever handlers a MODULE installed.

    Child processes then end and the folders of servers are removed. Ignored signals stay ignored,
    as under `nohup`.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
