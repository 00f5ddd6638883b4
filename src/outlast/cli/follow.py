"""`outlast watch`: what a run publishes, and what happens to it, as it happens."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from outlast.cli.exit_codes import OF_STATUS
from outlast.cli.options import IdArgument, StoreOption
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import App
from outlast.cli.stores import acting
from outlast.codec.text import safe
from outlast.engine.watching.events import DataEvent, EndEvent, ResetEvent, WatchEvent
from outlast.store.protocol import Store


def watch(
    id: IdArgument,
    stream: Annotated[
        str | None,
        typer.Argument(metavar="STREAM", help="A stream of the run. By default the run itself."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="CURSOR", help="Begin after the event that has this cursor."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One event per line, with its cursor.")
    ] = False,
) -> None:
    """Print what a run publishes, or what happens to it.

    The command ends with the run. Texts are printed as they arrive. The exit code is that of
    `outlast run`.
    """

    async def action(app: App, _: Store) -> EndEvent:
        show = _document if as_json else _Screen(stream is not None).show
        async for event in app.watch(id, stream, after=after):
            show(event)
            if isinstance(event, EndEvent):
                return event
        raise AssertionError("a watch ends with an event or an error")

    with answering(as_json):
        end = acting(store, action)
    raise typer.Exit(OF_STATUS[end.status])


def _document(event: WatchEvent) -> None:
    document(event.document(), indent=None)


class _Screen:
    """Print events for people: results to stdout, everything else to stderr."""

    def __init__(self, is_stream: bool) -> None:
        self._line_of = _text if is_stream else _happening
        self._is_stream = is_stream
        self._is_open = False
        """Whether the last line has no end yet."""

    def show(self, event: WatchEvent) -> None:
        if isinstance(event, DataEvent):
            self._write(self._line_of(event.value))
        elif isinstance(event, ResetEvent):
            self._end_line()
            print_message("what was printed so far no longer holds. It begins again here.")
        else:
            self._end_line()
            reason = (event.error or {}).get("message") or event.reason
            print_message(f"the run is {event.status}" + (f": {reason}" if reason else "."))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        if text:
            self._is_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_open:
            self._write("\n")


def _text(value: Any) -> str:
    """Return a published value: a text as it is, without control characters, or a line of JSON."""
    if isinstance(value, str):
        return "\n".join(safe(line) for line in value.split("\n"))
    from outlast.cli.text import readable

    return safe(readable(value, None)) + "\n"


def _executing(step: dict[str, Any]) -> str:
    attempt = f" (attempt {step['attempt']})" if step["attempt"] > 1 else ""
    return safe(f"{step['started']} {step['kind']} {step['key']} executes{attempt}") + "\n"


def _happening(value: dict[str, Any]) -> str:
    """Return a line on what happened to a run."""
    kind, entry = value["type"], value.get("entry")
    if entry is not None:
        parts = [entry["at"], kind, entry["key"]]
        if entry["seconds"] is not None:
            parts.append(f"{entry['seconds']:.3g} s")
        if entry["error"] is not None:
            parts.append(f"{entry['error']['type']}: {entry['error']['message']}")
    elif kind == "status":
        run = value["run"]
        parts = [run["ended"] or run["started"] or run["created"], run["status"], run["reason"]]
    elif kind == "executing":
        return "".join(map(_executing, value["steps"]))
    else:
        parts = [value.get("ended") or value.get("began"), kind.replace("_", " ")]
        parts += [f"by {value['worker']}" if value.get("worker") else "", value.get("key", "")]
    return " ".join(safe(str(part)) for part in parts if part) + "\n"
