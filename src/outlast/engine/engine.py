"""The engine: everything one process needs to execute runs. `Outlast` is its public face.

It owns the store, the writer, the lease and the lives; it starts runs, takes over those whose worker died, claims from queues if it
is a worker, and listens for what others want of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.cost import NOTHING, Cost
from outlast.codec.exceptions import encode_error
from outlast.engine.acquirer import RunAcquirer
from outlast.engine.claimer import Claimer
from outlast.engine.hooks import Hook, Hooks
from outlast.engine.idle_release import IdleReleaser
from outlast.engine.in_flight import InFlight
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.patience import patiently
from outlast.engine.registration import WorkerRegistration
from outlast.engine.request_poller import RequestPoller
from outlast.engine.stalls import Stalls
from outlast.engine.submission import OnConflict, check_joins
from outlast.engine.sweeper import Sweeper
from outlast.engine.takeover import Takeover
from outlast.errors import (
    Draining,
    DuplicateName,
    Evicted,
    LimitExceeded,
    StoreError,
    StoreUnavailable,
)
from outlast.execution import cancellation
from outlast.execution.run_execution import RunExecution
from outlast.execution.run_outcome import RunOutcome, lost
from outlast.execution.threads import Pool
from outlast.execution.unit_scope import Units
from outlast.settings import Settings
from outlast.settings.redaction import secrets_of
from outlast.shutdown.active_scopes import ActiveScope, ActiveScopes
from outlast.shutdown.drain import Drain
from outlast.shutdown.forecast import Durations
from outlast.store.commands import (
    DRAINING,
    Cancel,
    Refused,
    Renew,
    Submit,
    Submitted,
)
from outlast.store.deadline import until
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery, RunRow
from outlast.store.writer.group_commit import GroupCommitWriter, InlineWriter
from outlast.telemetry.error_text import format_error, format_recorded, redact
from outlast.telemetry.logs import hide
from outlast.telemetry.meters import meters_of
from outlast.telemetry.names import STATUSES
from outlast.telemetry.spans import Spans

if TYPE_CHECKING:
    from outlast.api.queue import Consumer
    from outlast.api.workflow import Call, Workflow
    from outlast.execution.run_loop import RunLoop
    from outlast.telemetry.store_stats import StoreStatsPoller

log = logging.getLogger("outlast")
PATIENCE_MIN = 0.05
AFTER_STORE_SECONDS = 0.5
"""Of a drain's grace, for what comes after the store was left."""
T = TypeVar("T")


class Engine:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        inline: bool = False,
        hooks: Mapping[str, Hook] | None = None,
    ) -> None:
        self.store, self.settings, self.loop, self.inline = store, settings, loop, inline
        kind = InlineWriter if inline else GroupCommitWriter
        self.thread = threading.get_ident()
        """The loop's."""
        self.writer = kind(
            store, loop, patience=settings.store_patience, batch_max=settings.batch_size_max, metered=bool(settings.metrics),
            log_values=settings.log_values,
        )  # fmt: skip
        self.meters, self.spans = meters_of(settings), Spans()
        self.log_values = settings.log_values
        """How many characters of a value may be logged."""
        self.pool = Pool()
        self.report_waiting: Callable[[str], None] = log.warning
        """To whoever waits for this process to begin."""
        self.executions: dict[str, RunExecution] = {}
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.unfinished_loops: list[RunLoop] = []
        self.hung: set[str] = set()
        """Runs that could not be given back, because a step of theirs still executes."""
        self.step_overrides: dict[Any, Callable[..., Any]] = {}
        """For tests: what to execute instead of a step's function."""
        self.observe: Callable[[str, str], None] | None = None
        """For tests: told the run and the key of every body that starts."""
        self.worker = WorkerRegistration(store, self.writer, settings, inline=inline)
        self.worker.lost, self.stalls = self._on_lease_lost, Stalls(self)
        self.in_flight = InFlight(self.wake_claimers)
        self.takeover = Takeover(self)
        self.sweeper = Sweeper(self)
        self.claimer: Claimer | None = None
        """Claims runs from queues, if this process is a worker."""
        self.consumers: set[Consumer] = set()
        self.hooks = Hooks(self, hooks or {})
        self.acquirer, self.request_poller, self.idle_releaser = (
            RunAcquirer(self),
            RequestPoller(self),
            IdleReleaser(self),
        )
        self._sweeping = False
        self.draining = self.closing = self.deferred_leave = False
        self.closing_thread: int | None = None
        """In a sync program: the thread that leaves it."""
        self.closing_task: asyncio.Task[Any] | None = None
        """The task that leaves it."""
        self.working = False
        """It has been opened."""
        self.unhealthy: str | None = None
        """Why this process is not ready, if its program says so."""
        self.durations, self.units = Durations(), Units()
        self.saved: Cost = NOTHING
        """What was not spent again, because this process took up runs that had died or been interrupted."""
        self.drain = Drain(self)
        self.active_scopes = ActiveScopes(self._on_scope_left)
        self.close_began: asyncio.Future[None] = loop.create_future()
        """Done when the engine begins to close."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tasks_after_close: set[asyncio.Task[None]] = set()
        self.notifier = ChangeNotifier(loop, self._ring)

    @cached_property
    def store_stats(self) -> StoreStatsPoller:
        """At the store, for those who ask for numbers."""
        from outlast.telemetry.store_stats import StoreStatsPoller

        return StoreStatsPoller(self, self.settings.metrics_series_max // len(STATUSES))

    # -- opening and closing

    async def open(self) -> None:
        hide(*secrets_of(self.settings))
        self.store.call_timeout = self.settings.call_timeout
        opening = self.track_task(self.loop.create_task(self._open_store()), quiet=True)
        try:
            await asyncio.shield(opening)
        except BaseException:
            self.closing = True
            opening.add_done_callback(lambda _: self._abort_opening())
            raise
        self.writer.start()
        try:
            await self.worker.register()
        except BaseException:
            self.writer.close()
            self._abort_opening()
            raise
        if not self.inline:
            self.notifier.poll_every(self.settings.poll)
            self.stalls.start()

    async def _open_store(self) -> None:
        """Open the store and listen to it. Wait as long as a write would if it is unavailable."""
        patience = self.settings.store_patience
        deadline = time.monotonic() + patience
        for action in (
            self.store.open,
            partial(self.store.listen, self.notifier.notify_threadsafe),
        ):
            await patiently(
                partial(self.in_thread, _until, deadline, action),
                patience,
                until=lambda: self.inline or self.closing,
                say=self.report_waiting,
            )

    async def close(self, why: str) -> None:
        """Evict every life, and give back what has stopped. After a drain there is little left to do.

        A run whose step still executes (a thread that hangs) is kept: its lock is held and its lease renewed until this
        process is gone.
        """
        self.closing = self.draining = self.in_flight.draining = True
        if not self.close_began.done():
            self.close_began.set_result(None)
        self.notifier.stop()
        self.stalls.stop()
        self.stop_claiming()
        if self.in_flight.held and self.drain.layer is None:
            # Should it be killed meanwhile: they were interrupted, not at fault.
            draining = Renew(self.worker.id, self.settings.lease, draining=True)
            self.writer.enqueue(draining, lambda *_: None)
        for execution in list(self.executions.values()):
            execution.evict(Evicted(why))
        ends: list[asyncio.Future[Any]] = [execution.end for execution in self.executions.values()]
        if ends:
            await asyncio.wait(ends, timeout=self.patience() * 2)
        await self._close_consumers()
        await self.hooks.close(self.patience())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.patience())
        batches = [one for one in self.active_scopes if one.kind in ("each", "map")]
        self.hung |= {
            one.name for one in batches if one.goes_on(self.closing_thread, self.closing_task)
        }

    async def _close_consumers(self) -> None:
        """All of them in the time of one."""
        until, consumers = self.loop.time() + self.patience(), list(self.consumers)
        for consumer in consumers:
            consumer.stop_all()
        for consumer in consumers:
            self.hung |= await consumer.close(max(0.0, until - self.loop.time()))

    def patience(self) -> float:
        """Seconds that closing waits for something that does not end. What a drain has waited for has had its time."""
        return min(self.settings.close_timeout, max(PATIENCE_MIN, self.drain.seconds_before_exit))

    def stop_claiming(self) -> None:
        """Take nothing more."""
        if self.claimer is not None:
            self.claimer.stop()
        for consumer in list(self.consumers):
            consumer.stop()

    def run_after_close(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes on when the engine has closed, if the program does."""
        task = self.loop.create_task(work)
        self._tasks_after_close.add(task)
        task.add_done_callback(self._on_task_after_close_done)

    def _on_task_after_close_done(self, task: asyncio.Task[None]) -> None:
        self._tasks_after_close.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            why = format_error(error, self.log_values)
            log.warning("what executed on after the close could not be given back: %s", why)

    def on_hung_work_ended(self, id: str) -> None:
        """Something that hung has ended. A worker that stayed for such things is struck off after the last of them."""
        self.hung.discard(id)
        if self.deferred_leave and not self.hung:
            self.deferred_leave = False
            self.run_after_close(self.deregister())

    def _on_scope_left(self, scope: ActiveScope) -> None:
        """From any thread."""
        self.drain.on_scope_left(scope)
        if scope.kind == "each" and scope.name in self.hung:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.on_hung_work_ended, scope.name)

    async def deregister(self) -> None:
        """Strike this worker off, and let go of the store; in a drain in the time that is left."""
        self.deferred_leave = bool(self.hung)  # then it is left when nothing hangs any more
        if self.deferred_leave:
            self.worker.stay_registered()
            log.warning("still executing, so not given back: %s", ", ".join(sorted(self.hung)))
            return
        within = None
        if self.drain.layer is not None:
            # A process of ours is ended by its deadline; another's may be past its drain.
            within = max(
                AFTER_STORE_SECONDS,
                self.drain.left - min(AFTER_STORE_SECONDS, self.drain.grace / 8),
            )
        try:
            async with asyncio.timeout(within):
                try:
                    await self.worker.deregister()
                except StoreError as error:
                    log.warning("could not strike this worker off: %s", error)
                    if within is not None:
                        return  # the process ends with its lock in hand
                await self.in_thread(self._close_store)
        except TimeoutError:
            log.warning(
                "the store did not answer: worker %s is not struck off, it will be swept",
                self.worker.id,
            )
        finally:
            self.pool.close()

    def _abort_opening(self) -> None:
        self.store.close()
        self.pool.close()

    def _close_store(self) -> None:
        self.writer.close()
        self.store.close()

    # -- claiming from queues

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Be a worker: execute what others submit."""
        self.claimer = Claimer(
            self, queues, lambda: tuple(self.workflows), concurrency, self.acquirer.begin_claimed
        )
        self.track_task(self.loop.create_task(self.claimer.work()))
        self.meters.begin(queues)
        self.start_sweeping()
        self.idle_releaser.watch()

    def start_sweeping(self) -> None:
        """Whoever claims also looks after the dead."""
        if not self._sweeping:
            self._sweeping = True
            self.track_task(self.loop.create_task(self.sweeper.work()))

    @property
    def accepts_drain_requests(self) -> bool:
        """Whether it drains when somebody asks for it through the store: a worker, and who takes items."""
        return self._sweeping and not self.draining

    def wake_claimers(self) -> None:
        if self.claimer is not None:
            self.claimer.wake()
        for consumer in self.consumers:
            consumer.claimer.wake()

    # -- starting runs

    def register_workflow(self, workflow: Workflow[..., Any]) -> None:
        """Two workflows with one name are an error: a run could not tell which is its own."""
        known = self.workflows.setdefault(workflow.name, workflow)
        if known is not workflow and known.fn is not workflow.fn:
            same = (known.fn.__module__, known.fn.__qualname__) == (
                workflow.fn.__module__,
                workflow.fn.__qualname__,
            )
            if not same:
                raise DuplicateName(
                    f"two workflows have the name {workflow.name!r}: {known.fn.__module__}.{known.fn.__qualname__} and "
                    f"{workflow.fn.__module__}.{workflow.fn.__qualname__}. Name one: @workflow(name=...)."
                )
            self.workflows[workflow.name] = workflow

    def submission(self, call: Call[Any], id: str, **fields: Any) -> Submit:
        if not hasattr(call, "workflow"):
            raise TypeError(
                f"it takes a call of a workflow, like submit(report('tides')), not {call!r}."
            )
        self.register_workflow(call.workflow)
        self.check_size(call.args, f"the arguments of {call.workflow.name}")
        call.workflow.signature.returns()
        workflow = call.workflow
        limits = {"timeout": workflow.timeout, "abandon_after": workflow.abandon_after}
        return self.build_submit(id, workflow.name, call.args, **limits, **fields)

    def build_submit(self, id: str, workflow: str, args: str, **fields: Any) -> Submit:
        chance = secrets.token_hex(24)  # asked for once: it is a system call, and not a cheap one
        settings = self.settings
        return Submit(
            id=id,
            workflow=workflow,
            args=args,
            token=chance[:16],
            seed=chance[16:],
            attempts_max=settings.max_attempts,
            interruptions_max=settings.interruptions_max,
            depth_max=settings.queue_depth_max,
            **fields,
        )

    async def start(
        self,
        call: Call[Any],
        id: str,
        parent: RunRow | None = None,
        on_conflict: OnConflict = "raise",
    ) -> RunRow:
        """Have a run executed here: new, or taken over, or joined where it is under way. Conflict for other work.

        Who asked may be cancelled meanwhile; what was submitted is begun all the same, so that no run is left behind.
        """
        command = self.submission(call, id)
        if self.draining:
            raise Draining(
                f"this process is on its way out: run {id!r} is not started. Submit it, or start it elsewhere."
            )
        if parent is not None:  # it goes where its parent goes
            command = command._replace(
                parent=parent.id, queue=parent.queue, priority=parent.priority
            )
        await self._wait_for_isolated_run(command.parent)
        with self.spans.starting("start", command.workflow) as link:
            row = await asyncio.shield(
                self.track_task(
                    self.loop.create_task(self._start(call, command, on_conflict)), quiet=True
                )
            )
            link([row.seed])
        return row

    async def _start(self, call: Call[Any], command: Submit, on_conflict: OnConflict) -> RunRow:
        outcome: Submitted | Refused
        for _ in range(3):
            worker = self.worker.id
            outcome = await self.acquirer.acquire(command._replace(worker=worker))
            if not isinstance(outcome, Refused):
                break
            if self.draining or outcome.why == DRAINING:
                raise Draining(
                    f"this process is on its way out: run {command.id!r} is not started."
                )
            await self.worker.register(instead_of=worker)  # it was taken for dead since
        else:
            raise StoreUnavailable(
                "the store takes this worker for dead again and again: is its clock right?"
            )
        row = outcome.row
        assert row is not None, "a run with a worker is returned"
        if outcome.new:
            self.acquirer.begin(row, call.workflow)
        else:
            check_joins(row, call, on_conflict)
            if row.status not in ENDED and row.status != "parked":
                self.takeover.start(row, call.workflow)
        return row

    async def _wait_for_isolated_run(self, parent: str | None) -> None:
        """What is started here waits for it too, but not for long; its own children do not."""
        until = self.loop.time() + self.settings.suspect_patience
        while self.in_flight.isolated is not None and self.loop.time() < until and not self.closing:
            if self.in_flight.isolated in self.in_flight.held and self.in_flight.held[
                self.in_flight.isolated
            ].id in self.in_flight.ancestors_held(parent):
                return
            await asyncio.sleep(0.02)

    def on_execution_ended(self, execution: RunExecution) -> None:
        """A life has ended. A run that has not is wanted back."""
        if self.executions.get(execution.id) is execution:
            del self.executions[execution.id]
        self.request_poller.forget(execution.id)
        self.release_slot(execution)
        if execution.id not in self.hung:
            self.in_flight.drop(execution.fence)
        if execution.claimed and execution.concluded:
            self._log_end(execution)
        self.meters.execution(execution.workflow.name, execution.how_it_ended)
        if execution.span is not None:
            execution.span.end(execution)
        if self.draining:
            self.drain.on_execution_ended(execution)
        self.wake_claimers()  # its parent may have waited for it, or its queue be less full
        over = execution.end_reason
        wanted = not execution.claimed and execution.idle is None and not self.draining
        if (
            wanted
            and isinstance(over, Evicted)
            and over.cause is None
            and execution.settlement is None
        ):
            self.takeover.start(execution.row, execution.workflow)

    def _log_end(self, execution: RunExecution) -> None:
        verdict, facts = execution.settlement, self.log_fields(execution.row)
        if verdict is not None and verdict.status == "failed":
            error = (
                format_recorded(verdict.error, self.log_values)
                if verdict.error
                else "it does not say why"
            )
            step = execution.raised.get(verdict.failed_at or 0)
            log.warning(
                "run %s failed: %s",
                execution.id,
                error,
                extra={**facts, "step": step, "status": "failed"},
            )
        elif verdict is not None:
            log.info(
                "run %s is %s",
                execution.id,
                verdict.status,
                extra={**facts, "status": verdict.status},
            )
        elif execution.how_it_ended != "parked":  # which is said by the hooks
            log.info(
                "run %s is released: %s",
                execution.id,
                execution.end_reason,
                extra={**facts, "status": "released"},
            )

    def log_fields(
        self, row: RunRow, step: str | None = None, attempt: int | None = None
    ) -> dict[str, Any]:
        """What a log line says of a run, or of a step of it, beside its text."""
        return {
            "run": row.id, "workflow": row.workflow, "queue": row.queue, "fence": abs(row.fence),
            "worker": row.worker or self.worker.id, "step": step, "attempt": attempt,
        }  # fmt: skip

    def redact_exception(self, error: BaseException | None) -> BaseException | None:
        """An error as a log may have it: without what it says, unless values may be logged."""
        return redact(error, self.log_values)

    def release_slot(self, execution: RunExecution) -> None:
        """Nothing of a run executes here any more: its slot is free."""
        if execution.claimed and self.claimer is not None:
            self.claimer.done(execution.fence)

    async def children_of(self, id: str) -> AsyncGenerator[RunRow, None]:
        """A run's children, newest first, a page at a time."""
        before = None
        while rows := await self.read(
            self.store.runs, RunQuery(parent=id, limit=100, before_pk=before)
        ):
            for row in rows:
                before = row.pk
                yield row

    # -- what others want of a run

    async def cancel(self, id: str, why: str) -> Any:
        outcome = await self.writer.execute(Cancel(id, why))
        execution = self.executions.get(id)
        if execution is not None and not isinstance(outcome, Refused):
            cancellation.check(execution, why)
        return outcome

    # -- waiting

    async def wait_until_ended(self, id: str) -> RunOutcome:
        """How a run ends, or that it was parked, wherever it executes."""
        while True:
            if self.closing:
                raise StoreUnavailable(
                    f"Outlast was closed while run {id!r} was under way; it is resumable."
                )
            execution = self.executions.get(id)
            if execution is not None:
                end = await asyncio.shield(execution.end)
                if end.status != "evicted":
                    return end
                if (
                    isinstance(execution.end_reason, Evicted)
                    and execution.end_reason.cause is not None
                ):
                    raise execution.end_reason.cause
                if self.closing:
                    raise StoreUnavailable(
                        f"Outlast was closed while run {id!r} was under way; it is resumable."
                    )
                if self.drain.by_signal:
                    raise Draining(
                        f"this process is on its way out and gave run {id!r} back: it goes on elsewhere."
                    )
            seen = self.notifier.count
            row = await self.read(self.store.run, id)
            if row is None:
                return RunOutcome(
                    "failed", error=encode_error(LookupError(f"run {id} is gone"), 1000)
                )
            if row.status in ENDED or row.status == "parked":
                return RunOutcome(row.status, row.value, row.error, row.reason)
            await self.notifier.wait(min(self.settings.poll, self._poll_seconds(id)), seen)

    def _poll_seconds(self, id: str) -> float:
        """Seconds that whoever waits here may still wait for what another process executes. Draining when there are none left."""
        drain = self.drain
        if not drain.by_signal or not drain.over.done() or drain.ends_here:
            return math.inf
        # A server with a handler of its own waits for its requests: nobody else would end this one. Until then it may get its answer.
        if drain.seconds_before_exit <= 0:
            raise Draining(f"this process is on its way out: run {id!r} is another's to execute.")
        return drain.seconds_before_exit

    async def while_parked(self, id: str) -> None:
        while True:
            seen = self.notifier.count
            row = await self.read(self.store.run, id)
            if row is None or row.status != "parked":
                return
            await self.notifier.wait(self.settings.poll, seen)

    def _ring(self) -> None:
        self.wake_claimers()
        if (self.executions or self.accepts_drain_requests) and not self.closing:
            self.track_task(self.loop.create_task(self.request_poller.poll_requests()))

    # -- small services

    async def read(self, fn: Callable[..., T], *args: Any) -> T:
        """Read from the store, in a thread, for `store_patience` seconds at most."""
        deadline = time.monotonic() + self.settings.store_patience
        found: T = await self.in_thread(_until, deadline, fn, *args)
        self.worker.has_read()
        return found

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call something that blocks, in a thread."""
        if self.inline:
            return fn(*args)
        # In a context of its own: what the store does is no part of what its caller does, nor of its trace.
        return await self.pool.run(self.loop, Context(), fn, *args)

    def track_task(self, task: asyncio.Task[T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Hold a task until it has ended, and say so if it failed, unless whoever waits for it is told."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.closing:
            log.error("a task of Outlast failed", exc_info=self.redact_exception(task.exception()))

    def check_size(self, text: str, what: str) -> None:
        if len(text) > self.settings.value_size_max:
            raise LimitExceeded("value_size_max", self.settings.value_size_max, len(text), what)

    def _on_lease_lost(self, worker: str) -> None:
        self.meters.lease_lost()
        for execution in list(self.executions.values()):
            if execution.row.worker == worker:
                execution.evict(lost("its worker was taken for dead"))
        for consumer in self.consumers:
            consumer.lost(worker)
        for fence, row in list(self.in_flight.held.items()):
            if row.worker == worker and row.id not in self.executions:
                self.acquirer.on_dropped(fence)
        if not self.draining:
            self.track_task(self.loop.create_task(self.worker.register(instead_of=worker)))


def _until(deadline: float, fn: Callable[..., T], *args: Any) -> T:
    with until(deadline):
        return fn(*args)
