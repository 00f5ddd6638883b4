"""`outlast drain`: ask a worker to shut down in an orderly way. The preStop command of a pod.

The request goes through the store, not by signal. A pid may belong to another pid namespace, or to
a program without a handler.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from outlast.cli.drains import drain_of, outcome
from outlast.cli.exit_codes import FAILED
from outlast.cli.hints import command
from outlast.cli.options import DrainWhyOption, JsonOption, StoreOption, TimeoutOption
from outlast.cli.os_user import os_user
from outlast.cli.output import answering, document, print_message
from outlast.cli.server import server_of
from outlast.cli.stores import reading
from outlast.cli.text import safe, span
from outlast.errors import OutlastError, StoreUnavailable
from outlast.errors.sentences import reason_by, stopped
from outlast.settings import Settings
from outlast.shutdown.report import drain_document
from outlast.store.commands import Refused, RequestDrain
from outlast.store.fleet import Fleet, names_of
from outlast.store.protocol import Store
from outlast.store.rows import DrainRow, WorkerRow

LINGER_SECONDS = 3.0
"""How long a drained worker may clean up before it counts as a program that keeps running."""
POLL_SECONDS = 0.1
AGAIN_SECONDS = 0.2
HEAR_SECONDS = 5.0
"""How long a worker with no claims on record may take to begin its drain.

Unless such a worker consumes a queue, it never notices the request.
"""
LISTED_MAX = 20

T = TypeVar("T")


class NoWorker(OutlastError):
    """No worker can be asked, and none was."""


class Choice(NamedTuple):
    workers: list[WorkerRow]
    drained: DrainRow | None = None
    """The drain of a named worker that has left already."""
    on_record: bool = True
    """Whether the workers have claims on record. A worker that only consumes a queue has none."""


class Asked(NamedTuple):
    """Hold what came of asking a worker."""

    worker: str
    host: str
    pid: int
    state: str
    """asked, draining (since before), drained (but still there), gone, or waiting (timed out)."""
    drain: DrainRow | None = None
    """The worker's drain, if it has begun."""
    dead: bool = False
    """Whether the process is gone but not swept yet."""


class Patience:
    """Bound how long the command takes, and how long it retries while the store is busy."""

    def __init__(self, timeout: float | None) -> None:
        self._until = time.monotonic() + (math.inf if timeout is None else timeout)
        self._busy = Settings.load({}).store_patience

    @property
    def left(self) -> float:
        return self._until - time.monotonic()

    def with_store(self, action: Callable[[], T]) -> T:
        """Repeat `action` while the store is busy: a preStop command has only one chance."""
        until = time.monotonic() + max(0.0, min(self._busy, self.left))
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
        bool, typer.Option("--wait", help="Return when the worker is gone, and print the result.")
    ] = False,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker",
            metavar="ID",
            help="This worker, on any host; the beginning of its id is enough.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every worker on this host.")] = False,
    why: DrainWhyOption = "outlast drain",
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Drain a worker on this host. It releases its runs and exits.

    Its steps have until the end of its grace to finish. Other workers continue the runs.
    A worker that is already draining is not asked again, but --wait waits for it.
    """
    if worker is not None and every:
        raise typer.BadParameter("--worker and --all exclude each other.", param_hint="--worker")
    if timeout is not None and not wait:
        raise typer.BadParameter(
            "without --wait there is nothing to wait for.", param_hint="--timeout"
        )
    with answering(as_json):
        patience = Patience(timeout)
        # A server adds its caller.
        by = None if server_of(store) else os_user()
        why = reason_by(why, by, Settings.load({}).error_text_max)
        with ExitStack() as stack:
            opened = patience.with_store(lambda: stack.enter_context(reading(store)))
            choice = patience.with_store(
                lambda: _choose(opened, worker, every=every, address=store)
            )
            asked = [patience.with_store(partial(_ask, opened, row, why)) for row in choice.workers]
            if wait:
                deadline = math.inf if choice.on_record else time.monotonic() + HEAR_SECONDS
                asked = [_wait(opened, one, patience, deadline) for one in asked]
        if choice.drained is not None:
            row = choice.drained
            asked.append(Asked(row.worker, row.host, row.pid, "gone", row))
        if as_json:
            document({"workers": [_document(one) for one in asked]})
        else:
            for one in asked:
                print_message(_sentence(one, choice, timeout, store))
        if any(one.state == "waiting" for one in asked):
            raise typer.Exit(FAILED)


# -- choosing workers


def _choose(store: Store, worker: str | None, *, every: bool, address: str | None) -> Choice:
    fleet = Fleet.of(store)
    host = socket.gethostname()
    if worker is not None:
        return _named(store, fleet, worker)
    here = [row for row in fleet.workers if row.host == host and fleet.state(row) != "dead"]
    claiming = [row for row in here if row.concurrency > 0 or names_of(row.queues)]
    candidates = claiming or here
    fresh = [row for row in candidates if not row.draining]
    if not candidates:
        raise NoWorker(_nobody(fleet, host, address))
    if every or not fresh:
        return Choice(candidates, on_record=bool(claiming))
    if len(fresh) > 1:
        raise typer.BadParameter(
            f"name one of the {len(fresh)} workers on this host: {_listed(fresh)}. Or pass --all.",
            param_hint="--worker",
        )
    return Choice(fresh, on_record=bool(claiming))


def _named(store: Store, fleet: Fleet, worker: str) -> Choice:
    found = [row for row in fleet.workers if row.id == worker] or [
        row for row in fleet.workers if worker and str(row.id).startswith(worker)
    ]
    if len(found) > 1:
        raise typer.BadParameter(
            f"{len(found)} workers begin with {safe(worker)!r}: {_listed(found)}. "
            "Give more of the id.",
            param_hint="--worker",
        )
    if found:
        return Choice(found, on_record=found[0].concurrency > 0 or bool(names_of(found[0].queues)))
    drained = drain_of(store, worker)
    if drained is None:
        known = f" Workers that do: {_listed(fleet.workers)}." if fleet.workers else ""
        raise NoWorker(f"no worker {worker!r} has this store open.{known}")
    return Choice([], drained)


def _nobody(fleet: Fleet, host: str, address: str | None) -> str:
    """Say that there is no worker to ask, which ones exist instead, and what to do."""
    sentences = [f"there is no worker to drain on this host ({host})"]
    dead = [row for row in fleet.workers if row.host == host]
    elsewhere = [row for row in fleet.workers if row.host != host and fleet.state(row) != "dead"]
    if dead:
        sentences.append(
            "these workers on this host seem dead, and the next sweep removes them: "
            f"{_listed(dead)}"
        )
    if elsewhere:
        ask = command("drain", "--worker", "ID", store=address)
        sentences.append(
            f"on other hosts: {_listed(elsewhere, hosts=True)}. To drain one, use {ask}"
        )
    elif not dead:
        sentences.append(
            "no process has this store open. If a worker runs here, name its store with --store or "
            "OUTLAST_STORE"
        )
    return (
        ". ".join(
            f"{one[0].upper()}{one[1:]}" if number else one for number, one in enumerate(sentences)
        )
        + "."
    )


def _listed(rows: Sequence[WorkerRow], *, hosts: bool = False) -> str:
    listed = [
        f"{safe(str(row.id))} ({safe(row.host) if hosts else f'pid {row.pid}'})"
        for row in rows[:LISTED_MAX]
    ]
    more = [f"and {len(rows) - LISTED_MAX} more"] if len(rows) > LISTED_MAX else []
    return ", ".join([*listed, *more])


# -- asking and waiting


def _ask(store: Store, row: WorkerRow, why: str) -> Asked:
    if row.draining:
        return Asked(row.id, row.host, row.pid, "draining", drain_of(store, row.id))
    refused = isinstance(store.commit([RequestDrain(row.id, why)])[0], Refused)
    return Asked(
        row.id,
        row.host,
        row.pid,
        "gone" if refused else "asked",
        drain_of(store, row.id) if refused else None,
    )


def _wait(store: Store, asked: Asked, patience: Patience, deadline: float) -> Asked:
    """Wait until the worker deregisters, its process is gone, or it has drained and stays.

    Stop at `deadline` if the worker has not begun to drain: it may never notice the request.
    """

    def find() -> tuple[WorkerRow | None, bool]:
        dead = asked.worker in store.dead_workers()
        return next((row for row in store.workers() if row.id == asked.worker), None), dead

    over: float | None = None
    while asked.state != "gone":
        row, dead = patience.with_store(find)
        if row is None or dead:
            return asked._replace(
                state="gone", drain=drain_of(store, asked.worker), dead=row is not None
            )
        drain = drain_of(store, asked.worker) if row.draining else None
        if drain is not None and drain.ended is not None:
            over = over or time.monotonic()
            if time.monotonic() - over > LINGER_SECONDS:
                return asked._replace(state="drained", drain=drain)
        if patience.left <= 0 or (not row.draining and time.monotonic() >= deadline):
            return asked._replace(state="waiting", drain=drain_of(store, asked.worker))
        time.sleep(max(0.0, min(POLL_SECONDS, patience.left)))
    return asked


# -- reporting


def _document(asked: Asked) -> dict[str, Any]:
    return {
        "id": asked.worker,
        "host": asked.host,
        "pid": asked.pid,
        "state": asked.state,
        "drain": None if asked.drain is None else drain_document(asked.drain),
    }


def _sentence(asked: Asked, choice: Choice, timeout: float | None, address: str | None) -> str:
    named = f"worker {asked.worker}"
    if asked.state == "asked":
        unless = (
            ""
            if choice.on_record
            else " It claims no runs, so it notices the request only if it consumes a queue."
        )
        return f"{named} (pid {asked.pid} on {asked.host}) was asked to drain.{unless}"
    if asked.state == "draining":
        reason = f": {asked.drain.reason}" if asked.drain is not None and asked.drain.reason else ""
        return stopped(f"{named} is already draining{reason}")
    if asked.state == "drained" and asked.drain is not None:
        return (
            f"{outcome(asked.drain)} Its process keeps running, because it is a program of "
            "its own and not `outlast worker`."
        )
    if asked.state == "waiting":
        if asked.drain is None and not choice.on_record:
            return (
                f"{named} was asked to drain and has not begun. Does it consume a queue? A "
                "program that only submits does not notice the request."
            )
        after = f"after {span(timeout or 0.0)}."
        stands = (
            f"has not begun to drain {after} Is its event loop blocked?"
            if asked.drain is None
            else f"is still draining {after}"
        )
        # Without its id, the command would choose another worker of this host.
        again = command("drain", "--worker", asked.worker, "--wait", store=address)
        return f"{named} {stands} The request stands. To keep waiting, run {again}."
    message = (
        f"{named} is gone and left no drain report."
        if asked.drain is None
        else outcome(asked.drain)
    )
    return f"{message} The next sweep releases what it still held." if asked.dead else message
