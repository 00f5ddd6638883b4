"""Define the run behind an `each` or a `map`. Its journal records which items are done.

It is a run without a workflow (EACH). This worker holds it under a fence, so that two processes
never process the same item. It is claimed only by id, by a call that has the code for the items.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.engine.takeover import HeldElsewhereNotice
from outlast.errors import (
    Conflict,
    Draining,
    LeaseLost,
    OutlastError,
    RunCancelled,
    StoreError,
    WrongStatus,
)
from outlast.execution.unit_scope import UNIT
from outlast.store.commands import DRAINING, EACH, Claim, Record, Refused, Release, Resume, Settle
from outlast.store.rows import ENDED, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

T = TypeVar("T")


class BatchRun:
    """The run of an `each` or a `map`, as `form` says.

    Only a map keeps results, so an id belongs to one of the two.
    """

    def __init__(self, engine: Engine, id: str, form: str, *, parent: str | None = None) -> None:
        self.engine, self.id, self.form = engine, id, form
        self._parent = parent
        self._args = json.dumps({"form": form})
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
        return self.engine.shutdown.begun and UNIT.get() is None

    def draining(self) -> Draining:
        return Draining(
            f"this process is shutting down: {self.form} {self.id!r} stops here. What is done is "
            "recorded, and the same call in another process continues from there."
        )

    async def unless_draining(self, task: asyncio.Task[T]) -> T:
        """Wait for a task and return its result.

        Raise Draining if a drain or a close begins first.
        """
        shutdown = self.engine.shutdown
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

        While another process holds the run, wait. The death of that process is noticed. Raise
        Draining if this process is draining.
        """
        engine = self.engine
        await engine.wait_for_isolated_run(self._parent)
        told = HeldElsewhereNotice(engine)
        while True:
            if engine.shutdown.begun:
                raise self.draining()
            seen = engine.notifier.count
            row = await engine.read(engine.store.run, self.id)
            held = await self._submit() if row is None else await self._claim(row)
            if held is not None:
                break
            if row is not None:
                told.log_if_late(row)
                pause = min(engine.settings.heartbeat, engine.settings.poll)
                due_in = row.due - engine.store.now()
                await engine.notifier.wait(min(pause, due_in) if due_in > 0 else pause, seen)
        if not engine.in_flight.start(held.fence):
            engine.acquirer.release(held, "its worker drains")
            raise self.draining()
        self._row, self._changes = held, seen
        try:
            await self._open(held, total)
        except BaseException:
            self.leave("it was not begun")
            raise

    async def _submit(self) -> RunRow | None:
        engine = self.engine
        worker = engine.worker.id
        command = engine.build_submit(
            self.id, EACH, self._args, queue=EACH, parent=self._parent, worker=worker
        )
        outcome = await engine.acquirer.acquire(command)
        if isinstance(outcome, Refused):
            if outcome.why == DRAINING:
                raise self.draining()
            # The worker was declared dead in between.
            await engine.worker.register(instead_of=worker)
            return None
        return outcome.row if outcome.new else None

    async def _claim(self, row: RunRow) -> RunRow | None:
        """Claim the run and return its row, or None if it cannot be claimed yet.

        Raise Conflict if the id belongs to another call, and WrongStatus if the run needs a person
        or is in flight here.
        """
        engine = self.engine
        self._check_same(row)
        if row.status == "done":
            # The store refuses this if another process was first.
            await engine.writer.execute(Resume(self.id, secrets.token_hex(8)))
        elif row.status == "parked" or row.status in ENDED:
            command = "resume" if row.status == "parked" else "retry"
            why = f" ({row.reason})" if row.reason else ""
            raise WrongStatus(
                f"{self.form} {self.id!r} is {row.status}{why}. To continue, run "
                f"`outlast {command} {self.id}`, then make this call again."
            )
        elif row.worker is not None:
            if engine.in_flight.is_held(row.fence):
                raise WrongStatus(
                    f"{self.form} {self.id!r} is under way in this process already. Leave that "
                    "loop first, or use another id."
                )
            if row.worker == engine.worker.id:
                # It was left behind when the store did not answer.
                await engine.sweeper.tidy()
            elif not await engine.sweeper.sweep():
                return None
        alone = row.is_suspect and engine.isolation.can_isolate(row)
        claim = Claim(engine.worker.id, secrets.token_hex(8), ids=(self.id,))
        rows = await engine.acquirer.claim(claim, alone=alone)
        return rows[0] if rows else None

    def _check_same(self, row: RunRow) -> None:
        if (row.workflow, row.args) != (EACH, self._args):
            recorded = f"{row.workflow}({row.args})"[:500]
            raise Conflict(self.id, recorded, f"{EACH}({self._args})")

    async def _open(self, row: RunRow, total: int | None) -> None:
        if row.cancel is not None:
            await self._cancelled(row.cancel)
        self._seq = (
            await self.engine.read(self.engine.store.last_seq, row.pk) if row.lives > 1 else 0
        )
        if total is not None:
            await self.write(self.note("items", "", json.dumps({"total": total})))

    # -- while it is held

    @property
    def _held(self) -> RunRow:
        if self._row is None:
            raise OutlastError(f"{self.form} {self.id!r} was left: make the call again.")
        return self._row

    async def done(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return those of the keys whose items are done, with their results."""
        return await self.engine.read(self.engine.store.done, self._held.pk, keys)

    def note(self, kind: str, key: str, value: str | None = None) -> Record:
        """Build the next numbered entry. Writing it more than once is harmless."""
        row, self._seq = self._held, self._seq + 1
        self._at = max(self._at, self.engine.store.now())
        return Record(row.pk, self._seq, row.fence, kind, key, self._at, value=value)

    async def write(self, entry: Record, *, alone: bool = False) -> None:
        """Write an entry. It is durable when this returns.

        Raise LeaseLost if another process has the run by now.
        """
        engine = self.engine
        answer: asyncio.Future[Any] = engine.loop.create_future()

        def heard(_: Any, outcome: Any) -> None:
            if isinstance(outcome, StoreError) and not answer.done():
                answer.set_exception(outcome)
            elif not answer.done():
                answer.set_result(outcome)

        engine.writer.enqueue(entry, heard, alone=alone and not engine.executions)
        self._check(await answer)
        if entry.kind == "done":
            # A suspect run that has done an item is no longer a suspect.
            engine.isolation.end(entry.fence)

    def _check(self, outcome: Any) -> None:
        if isinstance(outcome, Refused):
            self._lost = self._row
            self._drop()
            raise LeaseLost(
                f"{self.form} {self.id!r} belongs to another process: this one was taken for dead. "
                "What it did last is not recorded, and will be done again there."
            )

    async def check_cancelled(self) -> None:
        """Raise RunCancelled if the run is being cancelled.

        The row is read only after a notification.
        """
        engine = self.engine
        if self._row is not None and engine.notifier.count != self._changes:
            self._changes = engine.notifier.count
            row = await engine.read(engine.store.run, self.id)
            if row is not None and row.cancel is not None:
                await self._cancelled(row.cancel)

    async def _cancelled(self, why: str) -> None:
        await self._settle("cancelled", reason=why)
        raise RunCancelled(self.id, why)

    # -- releasing

    async def settle(self) -> None:
        """Record that every item is done."""
        count = await self.engine.read(self.engine.store.done_count, self._held.pk)
        await self._settle("done", value=json.dumps({"items": count}))

    async def _settle(self, status: str, **fields: Any) -> None:
        row = self._held
        self._check(await self.engine.writer.execute(Settle(row.pk, row.fence, status, **fields)))
        self._drop()

    def leave(self, why: str) -> None:
        """Release the run, so that another call can claim it. A repeat is harmless."""
        row = self._row
        if row is not None:
            why = why.encode(errors="backslashreplace").decode()[
                : self.engine.settings.error_text_max
            ]
            # Due now, so that a call can claim it by id at any time. Nothing else claims it.
            back = Release(row.pk, row.fence, why, waiting=True, due=self.engine.store.now())
            self.engine.writer.enqueue(back, partial(self._given_back, row.fence))
            self.engine.in_flight.ending(row.fence)
            self._row = None
        elif self._lost is not None:
            self.engine.in_flight.drop(self._lost.fence)

    def hang(self) -> None:
        """Note that code of the batch still executes although its call has ended.

        The worker stays registered until `leave`.
        """
        row = self._row or self._lost
        if row is not None:
            self.engine.in_flight.hang(row)

    def _given_back(self, fence: int, *_: Any) -> None:
        self.engine.in_flight.drop(fence)
        self.engine.notifier.notify()

    def _drop(self) -> None:
        row, self._row = self._row, None
        if row is not None:
            self.engine.in_flight.drop(row.fence)
