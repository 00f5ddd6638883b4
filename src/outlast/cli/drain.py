"""`outlast drain`: ask a worker to end in an orderly way, through the store. The preStop command of a pod.

Not by signal: a pid of another pid namespace, or of a program that has no handler, would be the wrong one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from outlast.app.settings import Settings
from outlast.cli.documents import drain_document, names_of
from outlast.cli.drains import DRAINS_MAX, summary
from outlast.cli.exits import FAILED
from outlast.cli.hints import command
from outlast.cli.options import JsonOption, StoreOption, checked_text, seconds
from outlast.cli.output import answering, document, say
from outlast.cli.stores import existing
from outlast.cli.takers import Fleet
from outlast.cli.text import safe, span
from outlast.errors import OutlastError, StoreUnavailable
from outlast.store.protocol import Store
from outlast.store.rows import DrainRow, WorkerRow
from outlast.store.verbs import AskDrain, Refused

LOOK_SECONDS = 0.1
HEAR_SECONDS = 5.0
"""How long one that has no claims on record may take to begin: if it consumes no queue, it never hears of the request."""
AGAIN_SECONDS = 0.2
LISTED_MAX = 20

T = TypeVar("T")


class NoWorker(OutlastError):
    """There is no worker that could be asked. Nothing was."""


class Asked(NamedTuple):
    """What came of asking a worker."""

    worker: str
    row: WorkerRow | None
    """As it was when it was asked; None if it had left before."""
    state: str
    """asked, draining (before this already), gone, or waiting if it is still there after the time-out."""
    drain: DrainRow | None
    """Its drain, if it has begun or is over."""


class Clock:
    """How long a command may take, and how patient it is with a busy store."""

    def __init__(self, timeout: float | None) -> None:
        self._until = None if timeout is None else time.monotonic() + timeout
        self._patience = Settings.load({}).store_patience

    @property
    def left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, self.left)))

    def patiently(self, action: Callable[[], T]) -> T:
        """Again and again while the store is busy: a preStop command has one chance."""
        until = time.monotonic() + min(self._patience, max(0.0, self.left))
        while True:
            try:
                return action()
            except StoreUnavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(AGAIN_SECONDS)


def drain(
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when it is gone, and say what came of it.")
    ] = False,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker", metavar="ID", help="This one, of whatever host; the start of its id is enough."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every worker of this host.")] = False,
    why: Annotated[
        str,
        typer.Option("--why", parser=checked_text, metavar="TEXT", help="The reason, as steps are told it."),
    ] = "outlast drain",
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", parser=seconds, metavar="SECONDS", help="With --wait: no longer than this."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the worker of this host to drain: it takes nothing more, lets its steps end, gives its runs back and exits with 0.

    It is asked through the store, not by a signal. A worker that drains already is not asked again, but waited for.
    """
    if worker is not None and every:
        raise typer.BadParameter("--worker and --all exclude each other.", param_hint="--worker")
    if timeout is not None and not wait:
        raise typer.BadParameter(
            "it is for --wait: without it nothing is waited for.", param_hint="--timeout"
        )
    clock = Clock(timeout)
    with answering(as_json):
        opened = clock.patiently(lambda: _open(store))
        try:
            chosen, shy = _choose(opened, clock, worker, every=every, store=store)
            asked = [_ask(opened, clock, one, why) for one in chosen]
            if wait:
                asked = [_wait(opened, clock, one, shy=shy) for one in asked]
        finally:
            opened.close()
        _answer(asked, as_json=as_json, shy=shy)
    if any(one.state == "waiting" for one in asked):
        raise typer.Exit(FAILED)


def _open(address: str | None) -> Store:
    store = existing(address)
    store.open()
    return store


# -- which


def _choose(
    store: Store, clock: Clock, worker: str | None, *, every: bool, store_address: str | None = None
) -> tuple[list[WorkerRow], bool]:
    raise NotImplementedError
