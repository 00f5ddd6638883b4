"""The intake: how runs and items come into this process's hands, and how lives of runs begin."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from outlast.api import determinism
from outlast.codec.reasons import NO_JOURNAL
from outlast.errors import StoreError, StoreUnavailable
from outlast.execution.children import Unneeded
from outlast.execution.run_cost import CUT
from outlast.execution.run_execution import RunExecution
from outlast.store.commands import DRAINING, Claim, Refused, Release, Settle, Submit, Submitted
from outlast.store.protocol import whole_journal
from outlast.store.rows import Entry, Message, RunRow

if TYPE_CHECKING:
    from outlast.api.workflow import Workflow
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast")
Past: TypeAlias = tuple[list[Entry], list[Message], dict[str, str], RunRow | None]
"""A run's journal, its mailbox, the progress of its steps, and the run that has started it, if its trace is wanted."""


class RunAcquirer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def claim(self, command: Claim, *, alone: bool = False) -> list[RunRow]:
        """Claim runs or items; `alone` if what comes is to have the room to itself. Nothing if this worker was swept."""
        engine = self._engine
        if alone:
            engine.in_flight.reserve()
        rows: list[RunRow] = []
        try:
            outcome = await self.acquire(command)
            if isinstance(outcome, Refused) and (engine.draining or outcome.why == DRAINING):
                engine.stop_claiming()
            elif isinstance(outcome, Refused):
                await engine.worker.register(instead_of=command.worker)
                engine.wake_claimers()  # nothing else would: under its new id it may claim at once
            else:
                rows = outcome
        finally:
            if alone:
                engine.in_flight.settle_reservation(rows[0].fence if rows else None)
        return rows

    async def acquire(self, command: Claim | Submit) -> Any:
        """Have a command written that gives runs to this worker. They are in hand from the moment that is known; if nobody waits
        for them any more, they are given back."""
        engine = self._engine
        answer: asyncio.Future[Any] = engine.loop.create_future()
        engine.in_flight.pending_claims += 1

        def answered(_: Any, outcome: Any) -> None:
            engine.in_flight.pending_claims -= 1
            for row in _given(outcome):
                engine.in_flight.add(row)
                if answer.done():
                    self.release(row, "nobody waited for it any more")
            if answer.done():
                return
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        engine.writer.enqueue(command, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                for row in _given(answer.result()):
                    self.release(row, "nobody waited for it any more")
            raise

    def release(self, row: RunRow, why: str) -> None:
        """Something in hand that was not begun."""
        engine = self._engine
        engine.writer.enqueue(Release(row.pk, row.fence, why, interrupted=False), lambda *_: None)
        self.on_dropped(row.fence)

    def on_dropped(self, fence: int, *, heard: bool = True) -> None:
        """It is in nobody's hand any more. Unless `heard`, that is on its way to the store, behind what was written of it before."""
        engine = self._engine
        (engine.in_flight.drop if heard else engine.in_flight.release)(fence)
        if engine.claimer is not None:
            engine.claimer.done(fence)

    async def begin_claimed(
        self, rows: list[RunRow], workflow: Workflow[..., Any] | None = None
    ) -> None:
        """Those in their first life at once; the others when their journals are read, all in one go."""
        engine = self._engine
        again: list[RunRow] = []
        for row in rows:
            if row.lives == 1:
                self.begin(row, workflow or engine.workflows[row.workflow])
            else:
                again.append(row)
        if not again:
            return
        try:
            pasts = await engine.read(self._pasts, again)
        except BaseException:
            for row in again:
                self.release(row, "its journal was not read")
            raise
        for row, past in zip(again, pasts, strict=True):
            if isinstance(past, StoreUnavailable):
                self.release(row, f"its journal could not be read: {past}")
            elif isinstance(past, Exception):
                self._park(row, past)
            else:
                self.begin(row, workflow or engine.workflows[row.workflow], *past)
        await (
            engine.request_poller.poll_requests()
        )  # somebody may have wanted one to end while its journal was read

    def _pasts(self, rows: list[RunRow]) -> list[Past | Exception]:
        """A journal that cannot be read is one run's trouble, not its neighbours'."""
        engine = self._engine
        store = engine.store
        pasts: list[Past | Exception] = []
        for row in rows:
            try:
                parent = engine.spans.above(store, row)
                pasts.append(
                    (
                        whole_journal(store, row.pk),
                        store.messages(row.pk),
                        store.progress(row.pk),
                        parent,
                    )
                )
            except Exception as error:
                pasts.append(error)
        return pasts

    def begin(
        self,
        row: RunRow,
        workflow: Workflow[..., Any],
        entries: Any = (),
        messages: Any = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
    ) -> None:
        """Start a life of a run in hand."""
        engine = self._engine
        if engine.closing:
            return  # it is given back when this worker leaves
        if engine.draining:
            self.release(row, "its worker drains")
            return
        if not engine.worker.is_alive(row.worker or ""):  # taken for dead since
            self._forget(row, workflow)
            return
        if (
            row.id in engine.executions
        ):  # a life that lost the run has not ended yet: its step may still execute
            engine.track_task(
                engine.loop.create_task(self._begin_after(engine.executions[row.id], row, workflow))
            )
            return
        if isinstance(workflow, Unneeded) and row.undoing is None:
            self.release(row, "it is not being undone any more, and its workflow is not known here")
            return
        try:
            execution = RunExecution(engine, row, workflow, entries, messages, saved, parent)
        except Exception as error:
            self._park(row, error)
            return
        if not engine.in_flight.start(row.fence):
            self.release(row, "its worker drains")
            return
        execution.claimed = engine.claimer is not None and row.fence in engine.claimer.held
        engine.executions[row.id] = execution
        if entries:
            self._count_recovery(execution, entries[-1])
        if execution.claimed and log.isEnabledFor(logging.INFO):
            alone = (
                ", alone: it died more than once without recording anything"
                if execution.suspect
                else ""
            )
            log.info("run %s is claimed%s", row.id, alone, extra=engine.log_fields(row))
        if engine.settings.check_workflows and not isinstance(workflow, Unneeded):
            determinism.warn_once(workflow, engine.log_fields(row))
        engine.loop.call_soon(execution.start)
        engine.idle_releaser.watch()
        engine.notifier.notify()  # whoever waits for the run waits for this life now

    def _count_recovery(self, execution: RunExecution, last: Entry) -> None:
        """How long a run lay that a death or an interruption has cut off. One that only woke up may have a journal that ends so too, but
        what it was given back for last was something else."""
        if last.kind not in CUT:
            return
        said = json.loads(last.value or "{}")
        if execution.row.interrupted is not None or said.get("why") == execution.row.reason:
            execution.cause = last.kind
            now = self._engine.store.now()
            self._engine.meters.recovered(last.kind, now - said.get("seen", last.at))

    async def _begin_after(
        self, earlier: RunExecution, row: RunRow, workflow: Workflow[..., Any]
    ) -> None:
        await asyncio.wait([earlier.end])
        await self.begin_claimed([row._replace(lives=max(2, row.lives))], workflow)

    def _forget(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """A run that is not this worker's any more: what was claimed is the fleet's, what was started here is wanted back."""
        engine = self._engine
        claimed = engine.claimer is not None and row.fence in engine.claimer.held
        self.on_dropped(row.fence)
        if not claimed:
            engine.takeover.start(row, workflow)

    def _park(self, row: RunRow, error: Exception) -> None:
        """Its journal cannot be read: a person must look."""
        engine = self._engine

        def parked(_: Any, outcome: Any) -> None:
            self.on_dropped(row.fence)
            if outcome is None:
                engine.hooks.tell("parked", row.id)
            engine.notifier.notify()

        why = f"{NO_JOURNAL}: {error!r}"
        engine.writer.enqueue(Settle(row.pk, row.fence, "parked", reason=why), parked)


def _given(outcome: Any) -> list[RunRow]:
    """What a command gave to this worker."""
    if isinstance(outcome, Submitted):
        return (
            [outcome.row]
            if outcome.new and outcome.row is not None and outcome.row.worker is not None
            else []
        )
    return outcome if isinstance(outcome, list) else []
