"""Where output goes: results and documents on stdout, everything said to a person beside them on stderr."""

from __future__ import annotations

import math
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
from outlast.errors import Backpressure, OutlastError, UnknownEffect
from outlast.explain.named import EXPLAIN

if TYPE_CHECKING:
    from rich.console import Console


FACTS: dict[type[OutlastError], tuple[str, ...]] = {
    Backpressure: ("queue", "depth", "limit"),
    UnknownEffect: ("there",),
}
"""What errors have to say to programs beside their message."""


def document(value: Any, indent: int | None = 2) -> None:
    """One JSON document on stdout."""
    value = _in_json(value)
    text = readable(value, indent)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        import json

        text = json.dumps(value, indent=indent).replace("\x7f", "\\u007f")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _in_json(value: Any) -> Any:
    """NaN and the infinities are no JSON: as texts, so that any reader can read the document. So is what is no value at all."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _in_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_json(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def say(message: str) -> None:
    """One line on stderr. Text from elsewhere in it needs no escaping by the caller."""
    print(f"outlast: {one_line(message)}", file=sys.stderr, flush=True)


def console() -> Console:
    """Stdout for people. Nothing in a text is interpreted, no line is broken; colour only where it is wanted."""
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Around a command: an error of Outlast is one line, another that names what explains it, and an exit code; never a traceback."""
    try:
        yield
    except OutlastError as error:
        if as_json:
            document(error_document(error))
        tell(error)
        raise typer.Exit(code_of(error)) from None
    except KeyboardInterrupt:
        say("interrupted.")
        raise typer.Exit(INTERRUPTED) from None


def tell(error: OutlastError) -> None:
    say(error_message(error))
    say(where_explained(error.explained_as))


def error_document(error: OutlastError) -> dict[str, Any]:
    """An error for programs."""
    facts = {name: getattr(error, name) for name in FACTS.get(type(error), ())}
    said = {
        "type": type(error).__name__,
        "message": error_message(error),
        "exit_code": code_of(error),
    }
    return {"error": {**said, "explain": error.explained_as, **facts}}


def where_explained(name: str) -> str:
    """The line that follows on an error."""
    return f"`{EXPLAIN} {name}` says more."


def error_message(error: OutlastError) -> str:
    """An error for people."""
    return _unknown_effect(error) if isinstance(error, UnknownEffect) else str(error)


def _unknown_effect(error: UnknownEffect) -> str:
    """In the words of the command line."""
    there = ", ".join(error.there)
    if len(error.there) > 1:
        return f"several effects of run {error.id!r} wait for a decision, and {error.effect!r} is not the place of one. Name one by its place: {there}."
    does = (
        f"This one does: {there}"
        if there
        else f"`outlast show {quote(error.id)}` says what it waits for"
    )
    return f"no effect {error.effect!r} of run {error.id!r} waits for a decision. {does}."


def write_whole(path: Path, text: str) -> None:
    """The file is this, or as it was: then OSError. No other file that anybody would have there is touched."""
    fresh = path.with_name(f".{path.name}.new")
    # Of one that was killed; or a link that somebody has laid there, which "x" does not follow either.
    fresh.unlink(missing_ok=True)
    try:
        with fresh.open("x", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def obey_signals() -> None:
    """All as Ctrl-C, whatever a MODULE has made of them: what was started is ended, folders of servers are removed. What is ignored, as under `nohup`, stays so."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
