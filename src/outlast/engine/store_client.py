"""Read and write the store on behalf of the engine's components."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

from outlast.engine.background import Background
from outlast.engine.registration import WorkerRegistration
from outlast.store.deadline import until
from outlast.store.protocol import Store
from outlast.store.rows import RunQuery, RunRow
from outlast.store.writer.group_commit_writer import GroupCommitWriter

T = TypeVar("T")

CHILDREN_PAGE = 100
"""How many children of a run are read at once."""


class StoreClient:
    """The store of this worker: reads in threads, writes through the group-commit writer."""

    def __init__(
        self,
        store: Store,
        writer: GroupCommitWriter,
        registration: WorkerRegistration,
        background: Background,
        patience: float,
    ) -> None:
        self.store = store
        self.writer = writer
        self._registration = registration
        self._background = background
        self._patience = patience
        """Seconds that a read may take while the store is unavailable."""

    async def read(self, fn: Callable[..., T], *args: Any) -> T:
        """Read from the store in a thread, for `store_patience` seconds at most."""
        deadline = time.monotonic() + self._patience
        found: T = await self._background.in_thread(call_until, deadline, fn, *args)
        self._registration.has_read()
        return found

    async def children_of(self, id: str) -> AsyncGenerator[RunRow, None]:
        """Yield a run's children, newest first. Read them from the store page by page."""
        before = None
        while rows := await self.read(
            self.store.runs, RunQuery(parent=id, limit=CHILDREN_PAGE, before_pk=before)
        ):
            for row in rows:
                before = row.pk
                yield row


def call_until(deadline: float, fn: Callable[..., T], *args: Any) -> T:
    """Call a function of the store, which gives up at `deadline` on the monotonic clock."""
    with until(deadline):
        return fn(*args)
