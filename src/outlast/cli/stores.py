"""Open an existing store as it is.

Only `outlast run`, `submit`, `worker` and `migrate` create a store, or migrate one to the version
of this release.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.cli.output import print_message
from outlast.cli.server import App, server_of
from outlast.errors import StoreError, StoreUnavailable
from outlast.settings.load import load
from outlast.settings.redaction import masked
from outlast.store.address import store_at
from outlast.store.fleet import Fleet
from outlast.store.protocol import CommitUnknown, NoStore, Store, left_as_it_is

if TYPE_CHECKING:
    from outlast.engine.limiters import LimiterInfo
    from outlast.engine.schedule_rows import ScheduleRow
    from outlast.store.pauses import PausedWorkflow

T = TypeVar("T")
AGAIN_SECONDS = 0.2


def store_of(address: str | None) -> Store:
    """Return the unopened store of --store, OUTLAST_STORE or the default."""
    loaded = load({"store": address})
    return store_at(loaded.address(), heartbeat=loaded.settings.heartbeat)


def shared(address: str | None) -> Store:
    """Return the store as `store_of` does. Raise NoStore if other processes cannot see it."""
    if load({"store": address}).settings.store.startswith("memory:"):
        raise NoStore(
            "a memory: store exists only in the process that opened it, so there is nothing to see "
            "from here."
        )
    return store_of(address)


def existing(address: str | None) -> Store:
    """Return the store as `shared` does, for commands that must neither create nor migrate it.

    A command that looks for a run must not leave an empty store behind, nor lock out workers of the
    previous release. Raise NoStore if the store does not exist and OlderStore if this release would
    have to migrate it. A store that cannot tell now raises when it is opened.
    """
    store = shared(address)
    store.migrates = False
    there, ours = _versions(store)
    if there < ours:
        place = f"{masked(load({'store': address}).settings.store)}{_where(store)}"
        raise left_as_it_is(place, there, ours)
    return store


def _where(store: Store) -> str:
    """Return the path of a file or folder store, which a relative address does not show."""
    found = getattr(store, "path", None) or getattr(store, "folder", None)
    return "" if found is None else f" ({found})"


class _Saying(logging.Handler):
    """Print a store's warnings the way the command line prints everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


@contextmanager
def reading(address: str | None, *, patient: bool = False) -> Iterator[Store]:
    """Open a store for reading, or for writing without registering a worker.

    With `patient`, wait for a store that is unavailable. With a server, its reads are requests.
    """
    url = server_of(address)
    if url is not None:
        with reading_over_http(url) as remote:
            yield remote
        return
    store = existing(address)
    warnings = logging.getLogger("outlast.store")
    saying = _Saying(logging.WARNING)
    warnings.addHandler(saying)
    try:
        if patient:
            patiently(store, store.open)
        else:
            store.open()
    finally:
        warnings.removeHandler(saying)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def reading_over_http(url: str) -> Iterator[Store]:
    """Yield the reads that commands make of a store, as requests to a server."""
    from outlast.cli.remote_store import RemoteStore

    store = RemoteStore(url)
    store.open()
    try:
        # It has what commands read, not all of a store.
        yield cast("Store", store)
    finally:
        store.close()


def schedules_in(store: Store) -> tuple[list[ScheduleRow], list[str]]:
    """Return all schedules, ordered by name, and what is wrong with each damaged one."""
    read: Any = getattr(store, "schedules", None)
    if read is not None:
        # Of a server. A store keeps schedules in sessions.
        found: tuple[list[ScheduleRow], list[str]] = read()
        return found
    from outlast.engine.schedule_rows import read_schedules

    rows, damaged = read_schedules(store)
    return rows, [str(error) for error in damaged]


def pauses_in(store: Store) -> list[PausedWorkflow]:
    """Return the paused workflows, ordered by name."""
    read: Any = getattr(store, "pauses", None)
    if read is not None:
        # Of a server. A store keeps pauses in sessions.
        found: list[PausedWorkflow] = read()
        return found
    from outlast.store.pauses import read_pauses

    return read_pauses(store)


def fleet_in(store: Store) -> Fleet:
    """Return the workers, and what keeps them from claiming: paused queues and workflows."""
    queues = tuple(row for row in store.queues() if row.gives_nothing)
    workflows = frozenset(one.name for one in pauses_in(store))
    return Fleet.of(store)._replace(paused_queues=queues, paused_workflows=workflows)


def limiters_in(store: Store) -> tuple[list[LimiterInfo], list[str]]:
    """Return the limiters, ordered by name, and the names of damaged ones."""
    read: Any = getattr(store, "limiters", None)
    if read is not None:
        # Of a server. A store keeps limiters in sessions.
        found: tuple[list[LimiterInfo], list[str]] = read()
        return found
    from outlast.engine.limiters import read_limiters

    return read_limiters(store)


def patiently(store: Store, action: Callable[[], T]) -> T:
    """Repeat `action` while the store is unavailable, for `store_patience` seconds, as an app does.

    The action must be safe to repeat.
    """
    patience = load({}).settings.store_patience
    deadline = time.monotonic() + patience
    has_reported = False
    unknown = False
    while True:
        try:
            if unknown:
                store.recover()
            return action()
        except (StoreUnavailable, CommitUnknown) as error:
            unknown = unknown or isinstance(error, CommitUnknown)
            if time.monotonic() + AGAIN_SECONDS > deadline:
                if unknown:
                    raise StoreUnavailable(f"{error} Whether it was written is unknown.") from None
                raise
            if not has_reported:
                has_reported = True
                print_message(f"waiting for the store, up to {patience:g} s: {error}")
        time.sleep(AGAIN_SECONDS)


def acting(address: str | None, action: Callable[[App, Store], Awaitable[T]]) -> T:
    """Run `action` with an open Outlast on an existing store, or with a client of a server."""
    url = server_of(address)
    return doing(existing(address), action) if url is None else acting_over_http(url, action)


def acting_over_http(url: str, action: Callable[[App, Store], Awaitable[T]]) -> T:
    """Run `action` with a client of a server."""
    from outlast.client.client import Client

    async def main() -> T:
        async with Client(url) as client:
            with reading_over_http(url) as store:
                return await action(client, store)

    return asyncio.run(main())


def doing(
    store: Store, action: Callable[[App, Store], Awaitable[T]], like: Outlast | None = None
) -> T:
    """Run `action` with an open Outlast on any store, which is created if it does not exist.

    `like` is another Outlast whose settings to use. The app serves no HTTP: in a container the port
    of `OUTLAST_HTTP` belongs to the worker.
    """
    given = (
        {name: value for name, value in internals(like).config.given.items() if name != "store"}
        if like is not None
        else {}
    )
    # Whatever the app would warn about ends as the error that this command reports.
    logging.getLogger("outlast").addHandler(logging.NullHandler())

    async def main() -> T:
        app = Outlast(store, **given | {"http": ""})
        internals(app).report_waiting(print_message)
        async with app:
            return await action(app, store)

    return asyncio.run(main())


def is_missing(store: Store) -> bool:
    """Return whether opening the store would create it."""
    return _versions(store)[0] == 0


def _versions(store: Store) -> tuple[int, int]:
    """Return the schema versions of the store and of this release.

    They are equal if the store does not say: it may exist, and opening it reports what is wrong.
    """
    try:
        return store.versions()
    except StoreError:
        return 1, 1
