"""Start executions of the runs that this worker has acquired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.background import Background
from outlast.engine.children import Unneeded
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.known_workflows import KnownWorkflows
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreUnavailable
from outlast.errors.reasons import NO_JOURNAL
from outlast.execution.definitions import WorkflowDefinition
from outlast.execution.run_cost import CUT
from outlast.execution.run_execution import RunExecution
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import Settle
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.stream_rows import PartInfo

Past: TypeAlias = tuple[list[Entry], list[Message], dict[str, str], RunRow | None, list[PartInfo]]
"""A run's journal, messages and step progress, its parent if the trace needs that, and what its
steps have published.
"""


class StartObserver(Protocol):
    """Receives what becomes of a run that was acquired to be executed."""

    def started(self, execution: RunExecution) -> None:
        """Note that an execution has been registered and is about to start."""

    def recovered(self, kind: str, seconds: float) -> None:
        """Note how long a run was idle after a death or an interruption."""

    def lost(self, row: RunRow, workflow: WorkflowDefinition, *, claimed: bool) -> None:
        """Note that the worker lost the run before its execution began."""

    def parked(self, id: str, *, recorded: bool) -> None:
        """Note that a run is parked because its journal cannot be read, if that was recorded."""

    async def journals_read(self) -> None:
        """Note that time has passed since the runs were acquired."""


class ExecutionStarter:
    """Read what a run has recorded, and start its execution."""

    def __init__(
        self,
        build: Callable[..., RunExecution],
        *,
        client: StoreClient,
        acquirer: WorkAcquirer,
        in_flight: InFlight,
        workflows: KnownWorkflows,
        read_parent: Callable[[Store, RunRow], RunRow | None],
        observer: StartObserver,
        background: Background,
        shutdown: ShutdownState,
    ) -> None:
        self._build = build
        """Builds an execution from its row, workflow and past."""
        self._client = client
        self._acquirer = acquirer
        self._in_flight = in_flight
        self._workflows = workflows
        self._read_parent = read_parent
        """Reads a run's parent if the trace needs it."""
        self._observer = observer
        self._background = background
        self._shutdown = shutdown

    async def begin_claimed(self, rows: list[RunRow]) -> None:
        """Start runs that were claimed from a queue, as `begin_read` does."""
        runs = [(row, self._workflows[row.workflow]) for row in rows]
        await self.begin_read(runs, claimed=True)

    async def begin_read(
        self, runs: list[tuple[RunRow, WorkflowDefinition]], *, claimed: bool
    ) -> None:
        """Start runs after reading what their earlier executions recorded.

        A run in its first execution starts at once. The journals of the others are read first, all
        in one go. A run whose journal cannot be read is parked, or released if the store is
        unavailable.
        """
        again: list[tuple[RunRow, WorkflowDefinition]] = []
        for row, workflow in runs:
            if row.lives == 1:
                self.begin(row, workflow, claimed=claimed)
            else:
                again.append((row, workflow))
        if not again:
            return
        try:
            pasts = await self._client.read(self._pasts, [row for row, _ in again])
        except BaseException:
            for row, _ in again:
                self._acquirer.release(row, "its journal was not read")
            raise
        for (row, workflow), past in zip(again, pasts, strict=True):
            if isinstance(past, StoreUnavailable):
                self._acquirer.release(row, f"its journal could not be read: {past}")
            elif isinstance(past, Exception):
                self._park(row, past)
            else:
                self.begin(row, workflow, *past, claimed=claimed)
        await self._observer.journals_read()

    def _pasts(self, rows: list[RunRow]) -> list[Past | Exception]:
        """Return the past of each run, or the error that reading it raised.

        An unreadable journal affects only its own run.
        """
        store = self._client.store
        pasts: list[Past | Exception] = []
        for row in rows:
            try:
                parent = self._read_parent(store, row)
                journal = whole_journal(store, row.pk)
                messages, progress = store.messages(row.pk), store.progress(row.pk)
                pasts.append((journal, messages, progress, parent, store.parts(row.pk)))
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
        parts: Sequence[PartInfo] = (),
        *,
        claimed: bool = False,
    ) -> None:
        """Start an execution of a held run, or release, park or drop it if that is not possible.

        `claimed` says that the run came from a queue, so that any worker may have it.
        """
        if self._shutdown.closing:
            # The run is released when this worker deregisters.
            return
        if self._shutdown.begun:
            self._acquirer.release(row, "its worker drains")
            return
        if not self._acquirer.owns(row):
            # The store has declared this worker dead since the claim.
            self._in_flight.drop(row.fence)
            self._observer.lost(row, workflow, claimed=claimed)
            return
        earlier = self._in_flight.executions.get(row.id)
        if earlier is not None:
            # An execution that lost the run has not ended yet: its step may still execute.
            self._background.spawn(self._begin_after(earlier, row, workflow, claimed=claimed))
            return
        if isinstance(workflow, Unneeded) and row.undoing is None:
            why = "it no longer needs compensation, and its workflow is not known here"
            self._acquirer.release(row, why)
            return
        if row.parent in self._in_flight.executions:
            parent = self._in_flight.executions[row.parent].row
        cause = _cause(row, entries[-1] if entries else None)
        try:
            execution = self._build(
                row, workflow, entries, messages, saved, parent, parts, claimed=claimed, cause=cause
            )
        except Exception as error:
            self._park(row, error)
            return
        if not self._in_flight.start(row.fence):
            self._acquirer.release(row, "its worker drains")
            return
        self._in_flight.add_execution(execution)
        if cause is not None:
            self._count_recovery(entries[-1])
        self._background.loop.call_soon(execution.start)
        self._observer.started(execution)

    def _count_recovery(self, last: Entry) -> None:
        """Report how long a run was idle after a death or an interruption."""
        since = json.loads(last.value or "{}").get("seen", last.at)
        self._observer.recovered(last.kind, self._client.store.now() - since)

    async def _begin_after(
        self, earlier: RunExecution, row: RunRow, workflow: WorkflowDefinition, *, claimed: bool
    ) -> None:
        await asyncio.wait([earlier.ending.finished])
        row = row._replace(lives=max(2, row.lives))
        await self.begin_read([(row, workflow)], claimed=claimed)

    def _park(self, row: RunRow, error: Exception) -> None:
        """Park a run whose journal cannot be read, for a person to inspect."""

        def parked(_: Any, outcome: Any) -> None:
            self._in_flight.drop(row.fence)
            self._observer.parked(row.id, recorded=outcome is None)

        why = f"{NO_JOURNAL}: {error!r}"
        self._client.writer.enqueue(Settle(row.pk, row.fence, "parked", reason=why), parked)


def _cause(row: RunRow, last: Entry | None) -> str | None:
    """Return what cut off the previous execution of a run: a death, an interruption or None.

    A run that only woke up may have a journal with the same last entry, but it was last released
    for another reason.
    """
    if last is None or last.kind not in CUT:
        return None
    is_cut = row.interrupted is not None or json.loads(last.value or "{}").get("why") == row.reason
    return last.kind if is_cut else None
