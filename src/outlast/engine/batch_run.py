"""Define the run behind an `each` or a `map`. Its journal records which items are done.

It is a run without a workflow (EACH). This worker holds it under a fence, so that two processes
never process the same item. It is claimed only by id, by a call that has the code for the items.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from outlast.engine.batch_acquirer import BatchAcquirer, draining
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.isolation import Isolation
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.errors import Draining, LeaseLost, OutlastError, RunCancelled, StoreError
from outlast.execution.shutdown_state import ShutdownState
from outlast.execution.unit_scope import UNIT
from outlast.store.commands import Record, Refused, Release, Settle
from outlast.store.rows import EntryKind, RunRow, Status

T = TypeVar("T")


class BatchRun:
    """The run of an `each` or a `map`, as `form` says.

    Only a map keeps results, so an id belongs to one of the two.
    """

    def __init__(
        self,
        id: str,
        form: str,
        *,
        parent: str | None,
        acquirer: BatchAcquirer,
        client: StoreClient,
        in_flight: InFlight,
        isolation: Isolation,
        notifier: ChangeNotifier,
        shutdown: ShutdownState,
        error_text_max: int,
    ) -> None:
        self.id = id
        self.form = form
        self._parent = parent
        self._acquirer = acquirer
        self._client = client
        self._in_flight = in_flight
        self._isolation = isolation
        self._notifier = notifier
        self._shutdown = shutdown
        self._error_text_max = error_text_max
        self._row: RunRow | None = None
        """The row while the run is held."""
        self._lost: RunRow | None = None
        """The row of a claim that was lost."""
        self._seq = 0
        self._at = 0.0
        self._changes = 0

    @property
    def stopping(self) -> bool:
        """Return whether a drain has begun and nothing more may start. A unit may end first."""
        return self._shutdown.begun and UNIT.get() is None

    def draining(self) -> Draining:
        """Return the error to raise when the batch stops because this process drains."""
        return draining(self.form, self.id)

    async def unless_draining(self, task: asyncio.Task[T]) -> T:
        """Wait for a task and return its result.

        Raise Draining if a drain or a close begins first.
        """
        shutdown = self._shutdown
        waiting: set[asyncio.Future[Any]] = {task}
        if UNIT.get() is None:
            waiting |= {shutdown.announced, shutdown.close_began}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise self.draining()
        return task.result()

    # -- acquiring

    async def take(self, total: int | None) -> None:
        """Acquire the run: a new one, an unheld one, or a finished one that is requested again.

        `total` is the number of items, if it is known. Raise Draining if this process is draining.
        """
        self._row, self._changes = await self._acquirer.acquire(self.id, self.form, self._parent)
        try:
            await self._open(self._row, total)
        except BaseException:
            self.leave("it was not begun")
            raise

    async def _open(self, row: RunRow, total: int | None) -> None:
        if row.cancel is not None:
            await self._cancelled(row.cancel)
        if row.lives > 1:
            self._seq = await self._client.read(self._client.store.last_seq, row.pk)
        if total is not None:
            await self.write(self.note("items", "", json.dumps({"total": total})))

    # -- while it is held

    @property
    def _held(self) -> RunRow:
        if self._row is None:
            raise OutlastError(
                f"the loop of {self.form} {self.id!r} was left. To continue it, repeat the call."
            )
        return self._row

    async def done(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return those of the keys whose items are done, with their results."""
        return await self._client.read(self._client.store.done, self._held.pk, keys)

    def note(self, kind: EntryKind, key: str, value: str | None = None) -> Record:
        """Build the next numbered entry. Writing it more than once is harmless."""
        row, self._seq = self._held, self._seq + 1
        self._at = max(self._at, self._client.store.now())
        return Record(row.pk, self._seq, row.fence, kind, key, self._at, value=value)

    async def write(self, entry: Record, *, alone: bool = False) -> None:
        """Write an entry. It is durable when this returns.

        Raise LeaseLost if another process has the run by now.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_answer(_: Any, outcome: Any) -> None:
            if isinstance(outcome, StoreError) and not answer.done():
                answer.set_exception(outcome)
            elif not answer.done():
                answer.set_result(outcome)

        alone = alone and not self._in_flight.executions
        self._client.writer.enqueue(entry, on_answer, alone=alone)
        self._check(await answer)
        if entry.kind == "done":
            # A suspect run that has done an item is no longer a suspect.
            self._isolation.end(entry.fence)

    def _check(self, outcome: Any) -> None:
        if isinstance(outcome, Refused):
            self._lost = self._row
            self._drop()
            raise LeaseLost(
                f"{self.form} {self.id!r} belongs to another process, because this one was "
                "declared dead. Items in flight here were not recorded and will run again there."
            )

    async def check_cancelled(self) -> None:
        """Raise RunCancelled if the run is being cancelled.

        The row is read only after a notification.
        """
        if self._row is not None and self._notifier.count != self._changes:
            self._changes = self._notifier.count
            row = await self._client.read(self._client.store.run, self.id)
            if row is not None and row.cancel is not None:
                await self._cancelled(row.cancel)

    async def _cancelled(self, why: str) -> None:
        await self._settle("cancelled", reason=why)
        raise RunCancelled(self.id, why)

    # -- releasing

    async def settle(self) -> None:
        """Record that every item is done."""
        count = await self._client.read(self._client.store.done_count, self._held.pk)
        await self._settle("done", value=json.dumps({"items": count}))

    async def _settle(self, status: Status, **fields: Any) -> None:
        row = self._held
        self._check(await self._client.writer.execute(Settle(row.pk, row.fence, status, **fields)))
        self._drop()

    def leave(self, why: str) -> None:
        """Release the run, so that another call can claim it. A repeat is harmless."""
        row = self._row
        if row is not None:
            why = why.encode(errors="backslashreplace").decode()[: self._error_text_max]
            # Due now, so that a call can claim it by id at any time. Nothing else claims it.
            back = Release(row.pk, row.fence, why, waiting=True, due=self._client.store.now())
            self._client.writer.enqueue(back, partial(self._on_released, row.fence))
            self._in_flight.ending(row.fence)
            self._row = None
        elif self._lost is not None:
            self._in_flight.drop(self._lost.fence)

    def hang(self) -> None:
        """Note that code of the batch still executes although its call has ended.

        The worker stays registered until `leave`.
        """
        row = self._row or self._lost
        if row is not None:
            self._in_flight.hang(row)

    def _on_released(self, fence: int, *_: Any) -> None:
        self._in_flight.drop(fence)
        self._notifier.notify()

    def _drop(self) -> None:
        row, self._row = self._row, None
        if row is not None:
            self._in_flight.drop(row.fence)


class Batches:
    """Build the batches of `each` and `map`."""

    def __init__(
        self,
        acquirer: BatchAcquirer,
        client: StoreClient,
        in_flight: InFlight,
        isolation: Isolation,
        notifier: ChangeNotifier,
        shutdown: ShutdownState,
        error_text_max: int,
    ) -> None:
        self._build = partial(
            BatchRun,
            acquirer=acquirer,
            client=client,
            in_flight=in_flight,
            isolation=isolation,
            notifier=notifier,
            shutdown=shutdown,
            error_text_max=error_text_max,
        )

    def build(self, id: str, form: str, parent: str | None = None) -> BatchRun:
        """Return the batch with this id. `parent` is the run whose step makes the call, if any."""
        return self._build(id, form, parent=parent)
