"""Opening a store that is there, as it is. Only `outlast run`, `submit`, `worker` and `migrate` make one, or bring one to the version of this release."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from outlast.api.outlast import Outlast
from outlast.cli.output import say
from outlast.errors import StoreError, StoreUnavailable
from outlast.settings.load import load
from outlast.settings.redaction import masked
from outlast.store.address import store_at
from outlast.store.protocol import CommitUnknown, NoStore, Store, left_as_it_is

T = TypeVar("T")
AGAIN_SECONDS = 0.2


def store_of(address: str | None) -> Store:
    """The store of --store, OUTLAST_STORE or the default, not opened yet."""
    loaded = load({"store": address})
    return store_at(loaded.address(), heartbeat=loaded.settings.heartbeat)


def shared(address: str | None) -> Store:
    """The same, but NoStore for one that other processes cannot see."""
    if load({"store": address}).settings.store.startswith("memory:"):
        raise NoStore(
            "memory: lives and ends with the process that opened it: there is nothing to see from here."
        )
    return store_of(address)


def existing(address: str | None) -> Store:
    """The same, but NoStore unless it is there, and OlderStore unless this release may open it as it is: whoever looks for a run must neither leave an empty
    store behind nor lock out the workers of the release before. One that does not say so now says it when it is opened."""
    store = shared(address)
    store.migrates = False
    there, ours = _versions(store)
    if there < ours:
        place = f"{masked(load({'store': address}).settings.store)}{_where(store)}"
        raise left_as_it_is(place, there, ours)
    return store


def _where(store: Store) -> str:
    """Of a file or folder, which a relative address does not say."""
    found = getattr(store, "path", None) or getattr(store, "folder", None)
    return "" if found is None else f" ({found})"


class _Saying(logging.Handler):
    """What a store warns of, as everything else is said here."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def reading(address: str | None, *, patient: bool = False) -> Iterator[Store]:
    """A store to look at, or to write to without a worker: none is enlisted. `patient`: one that is away is waited for."""
    store = existing(address)
    warnings, saying = logging.getLogger("outlast.store"), _Saying(logging.WARNING)
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


def patiently(store: Store, action: Callable[[], T]) -> T:
    """What an app does when it opens or writes: again while the store is unavailable, for `store_patience` seconds. A repeat must be harmless."""
    patience = load({}).settings.store_patience
    deadline, told, unknown = time.monotonic() + patience, False, False
    while True:
        try:
            if unknown:
                store.recover()
            return action()
        except (StoreUnavailable, CommitUnknown) as error:
            unknown = unknown or isinstance(error, CommitUnknown)
            if time.monotonic() + AGAIN_SECONDS > deadline:
                if unknown:
                    raise StoreUnavailable(
                        f"{error} Whether it was written is not known."
                    ) from None
                raise
            if not told:
                told = True
                say(f"waiting for the store, up to {patience:g} s: {error}")
        time.sleep(AGAIN_SECONDS)


def acting(address: str | None, action: Callable[[Outlast, Store], Awaitable[T]]) -> T:
    """Do something with an open Outlast on a store that is there."""
    return doing(existing(address), action)


def doing(
    store: Store, action: Callable[[Outlast, Store], Awaitable[T]], like: Outlast | None = None
) -> T:
    """The same on any store, which is made if it is not there; with the settings of another Outlast, if given. It serves no HTTP: in a container
    `OUTLAST_HTTP` is the worker's, which has the port."""
    given = (
        {name: value for name, value in like._given.items() if name != "store"}
        if like is not None
        else {}
    )
    # What it would warn of ends as the error that this command reports.
    logging.getLogger("outlast").addHandler(logging.NullHandler())

    async def main() -> T:
        app = Outlast(store, **given | {"http": ""})
        app._say_waiting = say
        async with app:
            return await action(app, store)

    return asyncio.run(main())


def is_missing(store: Store) -> bool:
    """Whether opening the store would make it."""
    return _versions(store)[0] == 0


def _versions(store: Store) -> tuple[int, int]:
    """Of the store and of this release; equal where the store does not say: it may be there, and opening it says what is wrong."""
    try:
        return store.versions()
    except StoreError:
        return 1, 1
