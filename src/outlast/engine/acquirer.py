"""Acquire runs and items for this process, and start run executions."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from outlast.engine.children import Unneeded
from outlast.errors import StoreError, StoreUnavailable
from outlast.errors.reasons import NO_JOURNAL
from outlast.execution import determinism
from outlast.execution.run_cost import CUT
from outlast.execution.run_execution import RunExecution
from outlast.store.commands import DRAINING, Claim, Refused, Release, Settle, Submit, Submitted
from outlast.store.protocol import whole_journal
from outlast.store.rows import Entry, Message, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.in_flight import SlotOwner
    from outlast.execution.definitions import WorkflowDefinition

log = logging.getLogger("outlast")
Past: TypeAlias = tuple[list[Entry], list[Message], dict[str, str], RunRow | None]
"""A run's journal, messages and step progress, and its parent if the trace needs that."""


class RunAcquirer:
    """Write the commands that give work to this worker, and start what they return."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def claim(
        self, command: Claim, *, alone: bool = False, slot: SlotOwner | None = None
    ) -> list[RunRow]:
        """Claim runs or items. Return an empty list if this worker was swept or drains.

        Each uses a slot of `slot`. With `alone`, the claimed suspect is isolated: this process
        executes nothing beside it.
        """
        engine = self._engine
        if alone:
            engine.isolation.reserve()
        rows: list[RunRow] = []
        try:
            outcome = await self.acquire(command, slot)
            if isinstance(outcome, Refused) and (engine.shutdown.begun or outcome.why == DRAINING):
                engine.stop_claiming()
            elif isinstance(outcome, Refused):
                await engine.worker.register(instead_of=command.worker)
                # Nothing else would wake them. Under its new id the worker may claim at once.
                engine.wake_claimers()
            else:
                rows = outcome
        finally:
            if alone:
                engine.isolation.settle_reservation(rows[0].fence if rows else None)
        return rows

    async def acquire(self, command: Claim | Submit, slot: SlotOwner | None = None) -> Any:
        """Write a command that gives runs to this worker, and return its outcome.

        The runs are held as soon as the outcome is known. They are released if the caller was
        cancelled.
        """
        engine = self._engine
        answer: asyncio.Future[Any] = engine.loop.create_future()
        engine.in_flight.claim_submitted()

        def answered(_: Any, outcome: Any) -> None:
            given = _given(outcome)
            engine.in_flight.claim_answered(given, slot)
            if answer.done():
                for row in given:
                    self.release(row, "nobody waited for it any more")
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
        """Release a held run or item that was not started."""
        engine = self._engine
        engine.writer.enqueue(Release(row.pk, row.fence, why, interrupted=False), lambda *_: None)
        engine.in_flight.drop(row.fence)

    async def begin_claimed(self, rows: list[RunRow]) -> None:
        """Start runs that were claimed from a queue, as `begin_read` does."""
        workflows = self._engine.workflows
        await self.begin_read([(row, workflows[row.workflow]) for row in rows], claimed=True)

    async def begin_read(
        self, runs: list[tuple[RunRow, WorkflowDefinition]], *, claimed: bool
    ) -> None:
        """Start runs after reading what their earlier executions recorded.

        A run in its first execution starts at once. The journals of the others are read first, all
        in one go. A run whose journal cannot be read is parked, or released if the store is
        unavailable.
        """
        engine = self._engine
        again: list[tuple[RunRow, WorkflowDefinition]] = []
        for row, workflow in runs:
            if row.lives == 1:
                self.begin(row, workflow, claimed=claimed)
            else:
                again.append((row, workflow))
        if not again:
            return
        try:
            pasts = await engine.read(self._pasts, [row for row, _ in again])
        except BaseException:
            for row, _ in again:
                self.release(row, "its journal was not read")
            raise
        for (row, workflow), past in zip(again, pasts, strict=True):
            if isinstance(past, StoreUnavailable):
                self.release(row, f"its journal could not be read: {past}")
            elif isinstance(past, Exception):
                self._park(row, past)
            else:
                self.begin(row, workflow, *past, claimed=claimed)
        # A cancellation may have been requested while the journals were read.
        await engine.request_poller.poll_requests()

    def _pasts(self, rows: list[RunRow]) -> list[Past | Exception]:
        """Return the past of each run, or the error that reading it raised.

        An unreadable journal affects only its own run.
        """
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
        workflow: WorkflowDefinition,
        entries: Any = (),
        messages: Any = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
        *,
        claimed: bool = False,
    ) -> None:
        """Start an execution of a held run, or release, park or drop it if that is not possible.

        `claimed` says that the run came from a queue, so that any worker may have it.
        """
        engine = self._engine
        if engine.shutdown.closing:
            # The run is released when this worker deregisters.
            return
        if engine.shutdown.begun:
            self.release(row, "its worker drains")
            return
        if not engine.worker.is_alive(row.worker or ""):
            # The store has declared this worker dead since the claim.
            self._forget(row, workflow, claimed=claimed)
            return
        if row.id in engine.executions:
            # An execution that lost the run has not ended yet: its step may still execute.
            earlier = engine.executions[row.id]
            later = self._begin_after(earlier, row, workflow, claimed=claimed)
            engine.track_task(engine.loop.create_task(later))
            return
        if isinstance(workflow, Unneeded) and row.undoing is None:
            self.release(row, "it is not being undone any more, and its workflow is not known here")
            return
        if row.parent in engine.executions:
            parent = engine.executions[row.parent].row
        try:
            execution = RunExecution(
                engine.services, row, workflow, entries, messages, saved, parent,
                claimed=claimed, cause=_cause(row, entries[-1] if entries else None),
            )  # fmt: skip
        except Exception as error:
            self._park(row, error)
            return
        if not engine.in_flight.start(row.fence):
            self.release(row, "its worker drains")
            return
        engine.in_flight.add_execution(execution)
        if execution.trace.cause is not None:
            self._count_recovery(entries[-1])
        if claimed and log.isEnabledFor(logging.INFO):
            alone = (
                ", alone: it died more than once without recording anything"
                if row.is_suspect
                else ""
            )
            log.info("run %s is claimed%s", row.id, alone, extra=engine.log_fields(row))
        if engine.settings.check_workflows and not isinstance(workflow, Unneeded):
            determinism.warn_once(workflow, engine.log_fields(row))
        engine.loop.call_soon(execution.start)
        engine.idle_releaser.watch()
        # Callers that wait for the run wait for this execution now.
        engine.notifier.notify()

    def _count_recovery(self, last: Entry) -> None:
        """Record how long a run was idle after a death or an interruption."""
        said = json.loads(last.value or "{}")
        now = self._engine.store.now()
        self._engine.meters.recovered(last.kind, now - said.get("seen", last.at))

    async def _begin_after(
        self, earlier: RunExecution, row: RunRow, workflow: WorkflowDefinition, *, claimed: bool
    ) -> None:
        await asyncio.wait([earlier.ending.finished])
        row = row._replace(lives=max(2, row.lives))
        await self.begin_read([(row, workflow)], claimed=claimed)

    def _forget(self, row: RunRow, workflow: WorkflowDefinition, *, claimed: bool) -> None:
        """Drop a run that this worker has lost.

        A claimed run is left to the fleet. A run that was started here is taken over again.
        """
        engine = self._engine
        engine.in_flight.drop(row.fence)
        if not claimed:
            engine.takeover.start(row, workflow)

    def _park(self, row: RunRow, error: Exception) -> None:
        """Park a run whose journal cannot be read, for a person to inspect."""
        engine = self._engine

        def parked(_: Any, outcome: Any) -> None:
            engine.in_flight.drop(row.fence)
            if outcome is None:
                engine.hooks.tell("parked", row.id)
            engine.notifier.notify()

        why = f"{NO_JOURNAL}: {error!r}"
        engine.writer.enqueue(Settle(row.pk, row.fence, "parked", reason=why), parked)


def _given(outcome: Any) -> list[RunRow]:
    """Return the rows that a command gave to this worker."""
    if isinstance(outcome, Submitted):
        return (
            [outcome.row]
            if outcome.new and outcome.row is not None and outcome.row.worker is not None
            else []
        )
    return outcome if isinstance(outcome, list) else []


def _cause(row: RunRow, last: Entry | None) -> str | None:
    """Return what cut off the previous execution of a run: a death, an interruption or None.

    A run that only woke up may have a journal with the same last entry, but it was last released
    for another reason.
    """
    if last is None or last.kind not in CUT:
        return None
    is_cut = row.interrupted is not None or json.loads(last.value or "{}").get("why") == row.reason
    return last.kind if is_cut else None
