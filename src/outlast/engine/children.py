"""Start and follow child runs: the runs that `await other_workflow(...)` starts inside a run.

Each child is a run of its own. Its id consists of its parent's id and its call site there, so every
execution of the parent finds the same child.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from outlast.codec.exceptions import CANCELLED, encode_error
from outlast.engine.background import Background
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.dead_worker_sweeper import Sweeper
from outlast.engine.known_workflows import KnownWorkflows
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.store_client import StoreClient
from outlast.errors import Conflict, Draining, RunCancelled, RunDead, StoreError
from outlast.execution import recording, release
from outlast.execution.call_site import CallSite, child_id
from outlast.execution.definitions import WorkflowCall
from outlast.execution.execution_state import EndReason, OutcomeKind, RunOutcome
from outlast.execution.run_execution import RunExecution
from outlast.settings import Settings
from outlast.store.commands import Retry, UndoChild
from outlast.store.rows import ENDED, RunRow
from outlast.telemetry.error_text import redact
from outlast.telemetry.meters import Meters

if TYPE_CHECKING:
    from outlast.engine.runs import Runs

log = logging.getLogger("outlast.replay")


class Children:
    """Start, follow and compensate the child runs of the runs that execute here."""

    def __init__(
        self,
        runs: Runs,
        client: StoreClient,
        workflows: KnownWorkflows,
        *,
        sweeper: Sweeper,
        notifier: ChangeNotifier,
        claimers: ClaimerSet,
        background: Background,
        meters: Meters,
        settings: Settings,
    ) -> None:
        self._runs = runs
        self._client = client
        self._workflows = workflows
        self._sweeper = sweeper
        self._notifier = notifier
        self._claimers = claimers
        self._background = background
        self._meters = meters
        self._settings = settings

    # -- starting

    def start(self, execution: RunExecution, site: CallSite, call: WorkflowCall) -> None:
        """Start a child, or find the one that exists. Called on the run loop."""
        id = self._id(execution, site.key)
        self._spawn(execution, self._follow(execution, site, call, id))
        site.stop = partial(self._stop, execution, id)

    def _id(self, execution: RunExecution, key: str) -> str:
        return child_id(execution.id, key, self._settings.id_length_max)

    def _spawn(self, execution: RunExecution, work: Coroutine[Any, Any, None]) -> None:
        """Start a task on the host loop, as part of this execution."""
        task: asyncio.Task[None] = asyncio.Task(work, loop=execution.host)
        execution.steps.follow(task)
        self._background.track_task(task)

    def _stop(self, execution: RunExecution, id: str) -> None:
        cancelling = self._runs.cancel(id, "its parent cancelled it")
        self._background.track_task(asyncio.Task(cancelling, loop=execution.host))

    async def _follow(
        self, execution: RunExecution, site: CallSite, call: WorkflowCall, id: str
    ) -> None:
        """Start the child, wait for it to end, and record its end in the parent's journal."""
        text_max = self._settings.error_text_max
        try:
            outcome = await self._end(execution, site, call, id)
        except asyncio.CancelledError:
            # This execution of the parent ends. The child is a run of its own.
            return
        except Draining:
            # The child was not started. The parent's next execution starts it.
            return
        except StoreError as error:
            execution.stop(EndReason.write_failed(error))
            return
        except Exception as error:
            text = encode_error(error, text_max)
            if recording.record(execution, "child", site.key, args=site.args, error=text):
                self._count(execution, call, "failed")
            return
        error_text = outcome.error
        if outcome.kind is OutcomeKind.CANCELLED:
            cancelled = encode_error(RunCancelled(id, outcome.reason or ""), text_max)
            error_text = CANCELLED if site.cancelled else cancelled
        elif outcome.kind is OutcomeKind.DEAD:
            error_text = encode_error(RunDead(id, outcome.reason or ""), text_max)
        if recording.record(
            execution, "child", site.key, site.args, outcome.value, error_text, asked=site.cancelled
        ):
            is_plain = outcome.kind in (OutcomeKind.DONE, OutcomeKind.CANCELLED)
            self._count(execution, call, outcome.kind.value if is_plain else "failed")

    def _count(self, execution: RunExecution, call: WorkflowCall, end: str) -> None:
        self._meters.step(execution.workflow.name, call.workflow.name, "child", end)

    async def _end(
        self, execution: RunExecution, site: CallSite, call: WorkflowCall, id: str
    ) -> RunOutcome:
        if await self._is_to_be_retried(execution, site, id):
            # The store refuses this unless the child has failed too. Both outcomes are fine.
            await self._client.writer.execute(Retry(id, secrets.token_hex(8)))
        while True:
            row = await self._runs.start(call, id, parent=execution.row)
            site.child = id
            if row.parent != execution.id:
                raise Conflict(id, "a run of its own", f"a child of {execution.id!r}")
            if site.cancelled:
                await self._runs.cancel(id, "its parent cancelled it")
            try:
                outcome = await self._runs.wait_until_ended(id)
            except Draining:
                # The child was released. Its parent waits for it and is released too.
                await execution.host.create_future()
                raise
            if outcome.kind is not OutcomeKind.PARKED:
                return outcome
            # The parent waits as long as its child is parked.
            await self._runs.while_parked(id)

    async def _is_to_be_retried(self, execution: RunExecution, site: CallSite, id: str) -> bool:
        """Return whether the child must be retried with its parent.

        Either the retry made the child's end void, or the child ended when its parent failed,
        which no journal records.
        """
        retried = execution.journal.retried
        if site.key in execution.journal.voided or retried is None:
            return site.key in execution.journal.voided
        row = await self._client.read(self._client.store.run, id)
        return row is not None and row.ended is not None and row.ended <= retried

    async def has_unfinished(self, run_id: str) -> bool:
        """Return whether a child of a failed or cancelled run has not ended or has effects."""
        async with aclosing(self._client.children_of(run_id)) as children:
            async for row in children:
                ended = row.status in ENDED and row.undoing is None
                undone = row.status in ("failed", "cancelled")
                if not ended or (
                    not undone
                    and await self._client.read(self._client.store.may_need_compensation, row.id)
                ):
                    return True
        return False

    # -- compensating

    def compensate(self, execution: RunExecution, site: CallSite, place: str | None) -> None:
        """Compensate a child that is done, or all children. Called on the run loop.

        Without `place`, end the children that have not ended, and compensate those whose end is not
        recorded.
        """
        if place is None:
            work = partial(self._end_all, execution, site)
        else:
            work = partial(self._undo, execution, site, self._id(execution, place))
        self._spawn(execution, self._record_undone(execution, site, work))

    async def _record_undone(
        self,
        execution: RunExecution,
        site: CallSite,
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Record that the children are compensated. Park the run if that fails."""
        try:
            await work()
        except (asyncio.CancelledError, Draining):
            return
        except StoreError as error:
            execution.stop(EndReason.write_failed(error))
            return
        except Exception as error:
            log.error(
                "Failed to compensate the children of run %s. The run waits for a person.",
                execution.id,
                exc_info=redact(error, self._settings.log_values),
                extra=execution.log_fields(site.key),
            )
            why = f"something is wrong with its children: {error!r}."
            release.mark_unknown(execution, site.key, why)
            await execution.host.create_future()
        recording.record(execution, "child", site.key, site.args, value="null")

    async def _end_all(self, execution: RunExecution, site: CallSite) -> None:
        known = {self._id(execution, one.place) for one in execution.journal.effect_log}
        async with aclosing(self._client.children_of(execution.id)) as children:
            async for row in children:
                if row.id not in known:
                    await self._undo(execution, site, row.id)

    async def _undo(self, execution: RunExecution, site: CallSite, id: str) -> None:
        """Wait until a child has ended and has nothing left to compensate.

        A child that only needs compensation may execute here, because its workflow's code is not
        needed.
        """
        site.child = id
        asked: RunRow | None = None
        while True:
            seen = self._notifier.count
            row = await self._client.read(self._client.store.run, id)
            if row is None:
                return
            if row.undoing is None and row != asked:
                # Ask once per state of the row: asking triggers the notification awaited below.
                await self._ask(execution, row)
                asked = await self._client.read(self._client.store.run, id)
                continue
            if row.undoing is None and row.status in ENDED:
                return
            if row.status in ("parked", "dead"):
                why = (
                    f"its child {id} is {row.status} and cannot be compensated: run "
                    f"`outlast retry {quote(id)}`."
                )
                release.mark_unknown(execution, site.key, why)
                await execution.host.create_future()
            if row.undoing is not None or row.workflow in self._workflows:
                self._runs.takeover.start(
                    row, self._workflows.get(row.workflow) or cast("Any", Unneeded(row.workflow))
                )
            elif row.worker is not None:
                await self._sweeper.sweep()
            pause = min(self._settings.poll, 10 * self._settings.heartbeat)
            await self._notifier.wait(pause, seen)

    async def _ask(self, execution: RunExecution, row: RunRow) -> None:
        """Ask a child to end, and to compensate its effects."""
        why = f"its parent {execution.id} is being compensated"
        if row.status not in ENDED:
            await self._runs.cancel(row.id, why)
        unheld = self._is_left_alone(row)
        await self._client.writer.execute(UndoChild(row.id, execution.id, why, unheld=unheld))

    def _is_left_alone(self, row: RunRow) -> bool:
        """Return whether no worker has the child or will take it.

        Either it is a dead letter, or this process is not a worker and lacks its code.
        """
        elsewhere = self._claimers.own is not None or row.workflow in self._workflows
        return row.status == "dead" or (
            row.worker is None and row.status not in ENDED and not elsewhere
        )


class Unneeded:
    """A stand-in for the workflow of a run that is only compensated.

    Its code does not execute and may be missing here.
    """

    is_async = True
    timeout = None

    def __init__(self, name: str) -> None:
        self.name = name
