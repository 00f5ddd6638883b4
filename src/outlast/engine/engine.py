"""Everything one process needs to execute runs. `Outlast` is its public face.

The engine owns the store, the writer, the lease and the run executions. It starts runs and takes
over runs whose worker died. In a worker it also claims from queues. It polls the store for requests
that other processes make of its runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.exceptions import encode_error
from outlast.engine.acquirer import RunAcquirer
from outlast.engine.active_scopes import ActiveScope, ActiveScopes
from outlast.engine.claimer import Claimer
from outlast.engine.engine_services import build_services
from outlast.engine.hooks import Hook, Hooks
from outlast.engine.idle_release import IdleReleaser
from outlast.engine.in_flight import HeldState, InFlight
from outlast.engine.isolation import Isolation
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.patience import patiently
from outlast.engine.registration import WorkerRegistration
from outlast.engine.request_poller import RequestPoller
from outlast.engine.shutdown_listener import ShutdownListener
from outlast.engine.stalls import Stalls
from outlast.engine.submission import OnConflict, check_joins
from outlast.engine.sweeper import Sweeper
from outlast.engine.takeover import Takeover
from outlast.errors import (
    Draining,
    DuplicateName,
    LimitExceeded,
    StoreUnavailable,
)
from outlast.execution import cancellation
from outlast.execution.shutdown_signal import ShutdownSignal
from outlast.execution.state import EndReason, OutcomeKind, RunOutcome
from outlast.execution.threads import Pool
from outlast.execution.tracing import Spans
from outlast.settings import Settings
from outlast.settings.redaction import secrets_of
from outlast.store.commands import (
    DRAINING,
    EACH,
    Cancel,
    Refused,
    Renew,
    Submit,
    Submitted,
)
from outlast.store.deadline import until
from outlast.store.protocol import Store
from outlast.store.rows import ENDED, RunQuery, RunRow
from outlast.store.writer.group_commit import GroupCommitWriter
from outlast.store.writer.inline import InlineWriter
from outlast.telemetry.error_text import format_error, redact
from outlast.telemetry.logs import hide
from outlast.telemetry.meters import meters_of

if TYPE_CHECKING:
    from outlast.engine.consumer import Consumer
    from outlast.execution.definitions import WorkflowCall, WorkflowDefinition

log = logging.getLogger("outlast")
T = TypeVar("T")


class Engine:
    """Execute runs in one process: the hub that the engine's components share."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        shutdown: ShutdownSignal,
        *,
        inline: bool = False,
        hooks: Mapping[str, Hook] | None = None,
    ) -> None:
        self.store, self.settings, self.loop, self.inline = store, settings, loop, inline
        self.shutdown = shutdown
        """Whether this process shuts down. Only `shutdown/` writes it."""
        kind = InlineWriter if inline else GroupCommitWriter
        self.thread = threading.get_ident()
        """The id of the event loop's thread."""
        self.writer = kind(
            store, loop, patience=settings.store_patience, batch_max=settings.batch_size_max, metered=bool(settings.metrics),
            log_values=settings.log_values,
        )  # fmt: skip
        self.meters, self.spans = meters_of(settings), Spans()
        self.log_values = settings.log_values
        """Maximum number of characters of a value that may be logged."""
        self.pool = Pool()
        self.report_waiting: Callable[[str], None] = log.warning
        """Reports that opening waits for the store."""
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.worker = WorkerRegistration(store, self.writer, settings, inline=inline)
        self.worker.lost, self.stalls = self._on_lease_lost, Stalls(self)
        self.in_flight = InFlight(on_hung_ended=self._on_hung_work_ended)
        self.executions = self.in_flight.executions
        self.isolation = Isolation(self.in_flight, on_ended=self.wake_claimers)
        self.takeover = Takeover(self)
        self.sweeper = Sweeper(self)
        self.claimer: Claimer | None = None
        """Claims runs from queues. None unless this process is a worker."""
        self.consumers: set[Consumer] = set()
        self.hooks = Hooks(self, hooks or {})
        self.acquirer, self.request_poller, self.idle_releaser = (
            RunAcquirer(self),
            RequestPoller(self),
            IdleReleaser(self),
        )
        self._sweeping = False
        self.unhealthy: str | None = None
        """Why this process is not ready, if its program set a reason."""
        self.active_scopes = ActiveScopes(self._on_scope_left)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tasks_after_close: set[asyncio.Task[None]] = set()
        self.notifier = ChangeNotifier(loop, self._ring)
        self.services = build_services(self)
        """What executions get of this engine."""

    def subscribe(self, listener: ShutdownListener) -> None:
        """Report what a shutdown must know to `listener`. Call this before `open`."""
        self.listener = listener

    def _on_hung_work_ended(self) -> None:
        self.listener.hung_work_ended()

    def _on_scope_left(self, scope: ActiveScope) -> None:
        self.listener.scope_left(scope)

    # -- opening and closing

    async def open(self) -> None:
        """Open the store, start the writer and register this worker.

        If that fails or is cancelled, close the store and raise.
        """
        hide(*secrets_of(self.settings))
        self.store.call_timeout = self.settings.call_timeout
        opening = self.track_task(self.loop.create_task(self._open_store()), quiet=True)
        try:
            await asyncio.shield(opening)
        except BaseException:
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
        """Open the store and listen for changes.

        Wait as long as a write would if the store is unavailable.
        """
        patience = self.settings.store_patience
        deadline = time.monotonic() + patience
        for action in (
            self.store.open,
            partial(self.store.listen, self.notifier.notify_threadsafe),
        ):
            await patiently(
                partial(self.in_thread, _until, deadline, action),
                patience,
                until=lambda: self.inline or self.shutdown.closing,
                say=self.report_waiting,
            )

    async def close(
        self, why: str, *, left_by_task: asyncio.Task[Any], left_by_thread: int | None
    ) -> None:
        """Evict every run execution and release what has stopped.

        After a drain there is little left to do. A run whose step still executes (a thread that
        hangs) is kept: the worker holds its lock and renews its lease until this process is gone.
        The task and the thread that leave the app do not count as executing.
        """
        self.in_flight.begin_drain()
        self.notifier.stop()
        self.stalls.stop()
        self.stop_claiming()
        if self.in_flight.held() and not self.shutdown.draining:
            # If the process is killed meanwhile, its runs count as interrupted, not as at fault.
            draining = Renew(self.worker.id, self.settings.lease, draining=True)
            self.writer.enqueue(draining, lambda *_: None)
        for execution in list(self.executions.values()):
            execution.stop(EndReason.released(why))
        ends: list[asyncio.Future[Any]] = [
            execution.ending.finished for execution in self.executions.values()
        ]
        if ends:
            await asyncio.wait(ends, timeout=self.shutdown.close_seconds * 2)
        await self._close_consumers()
        await self.hooks.close(self.shutdown.close_seconds)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self.shutdown.close_seconds)
        self._hang_batches(left_by_task, left_by_thread)

    def _hang_batches(self, left_by_task: asyncio.Task[Any], left_by_thread: int | None) -> None:
        """Keep the batches of `each` and `map` whose code still executes."""
        going_on = {
            scope.name
            for scope in self.active_scopes
            if scope.kind in ("each", "map") and scope.goes_on(left_by_thread, left_by_task)
        }
        for state in (HeldState.STARTED, HeldState.ENDING):
            for row in self.in_flight.in_state(state):
                if row.workflow == EACH and row.id in going_on:
                    self.in_flight.hang(row)

    async def _close_consumers(self) -> None:
        """Close all consumers within the patience for one."""
        until, consumers = self.loop.time() + self.shutdown.close_seconds, list(self.consumers)
        for consumer in consumers:
            consumer.stop_all()
        for consumer in consumers:
            for row in await consumer.close(max(0.0, until - self.loop.time())):
                self.in_flight.hang(row)

    def stop_claiming(self) -> None:
        """Stop the claimer and the consumers from claiming more."""
        if self.claimer is not None:
            self.claimer.stop()
        for consumer in list(self.consumers):
            consumer.stop()

    def run_after_close(self, work: Coroutine[Any, Any, None]) -> None:
        """Execute work after the engine has closed, if the program continues. Log a failure."""
        task = self.loop.create_task(work)
        self._tasks_after_close.add(task)
        task.add_done_callback(self._on_task_after_close_done)

    def _on_task_after_close_done(self, task: asyncio.Task[None]) -> None:
        self._tasks_after_close.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            why = format_error(error, self.log_values)
            log.warning(
                "Work that outlived the close of the app could not be released: %s. "
                "Another worker takes it over when this process is gone.",
                why,
            )

    def _abort_opening(self) -> None:
        self.store.close()
        self.pool.close()

    def close_store(self) -> None:
        """Close the writer and the store. It blocks, so call it in a thread."""
        self.writer.close()
        self.store.close()

    # -- claiming from queues

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Become a worker: claim and execute runs that other processes submit."""
        self.claimer = Claimer(
            self, queues, lambda: tuple(self.workflows), concurrency, self.acquirer.begin_claimed
        )
        self.track_task(self.loop.create_task(self.claimer.work()))
        self.meters.begin(queues)
        self.start_sweeping()
        self.idle_releaser.watch()

    def start_sweeping(self) -> None:
        """Start the sweeper, once. Every process that claims also sweeps dead workers."""
        if not self._sweeping:
            self._sweeping = True
            self.track_task(self.loop.create_task(self.sweeper.work()))

    @property
    def accepts_drain_requests(self) -> bool:
        """Return whether a drain request in the store applies to this process.

        It does for a process that claims runs or items and is not draining yet.
        """
        return self._sweeping and not self.shutdown.begun

    def wake_claimers(self) -> None:
        if self.claimer is not None:
            self.claimer.wake()
        for consumer in self.consumers:
            consumer.claimer.wake()

    # -- starting runs

    def register_workflow(self, workflow: WorkflowDefinition) -> None:
        """Register a workflow by its name.

        Raise DuplicateName if another function has the name: a run could not tell which is its own.
        A new definition of the same function replaces the earlier one.
        """
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

    def submission(self, call: WorkflowCall, id: str, **fields: Any) -> Submit:
        """Build the submit command for a call of a workflow, and register the workflow.

        Raise TypeError for anything but a call, and LimitExceeded if its arguments are too large.
        """
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
        """Build a submit command with a fresh token and seed, and the limits from the settings."""
        # One call for both values: it is a system call, and not a cheap one.
        chance = secrets.token_hex(24)
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
        call: WorkflowCall,
        id: str,
        parent: RunRow | None = None,
        on_conflict: OnConflict = "raise",
    ) -> RunRow:
        """Start a run in this process, take it over, or join it where it is in flight.

        Raise Conflict if the id belongs to other work, and Draining while this process drains. If
        the caller is cancelled, a submitted run is started all the same, so that no run is left
        behind.
        """
        command = self.submission(call, id)
        if self.shutdown.begun:
            raise Draining(
                f"this process is on its way out: run {id!r} is not started. Submit it, or start it elsewhere."
            )
        # A child goes to its parent's queue.
        if parent is not None:
            command = command._replace(
                parent=parent.id, queue=parent.queue, priority=parent.priority
            )
        await self.wait_for_isolated_run(command.parent)
        with self.spans.starting("start", command.workflow) as link:
            row = await asyncio.shield(
                self.track_task(
                    self.loop.create_task(self._start(call, command, on_conflict)), quiet=True
                )
            )
            link([row.seed])
        return row

    async def _start(self, call: WorkflowCall, command: Submit, on_conflict: OnConflict) -> RunRow:
        outcome: Submitted | Refused
        for _ in range(3):
            worker = self.worker.id
            outcome = await self.acquirer.acquire(command._replace(worker=worker))
            if not isinstance(outcome, Refused):
                break
            if self.shutdown.begun or outcome.why == DRAINING:
                raise Draining(
                    f"this process is on its way out: run {command.id!r} is not started."
                )
            # The store has declared this worker dead since.
            await self.worker.register(instead_of=worker)
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

    async def wait_for_isolated_run(self, parent: str | None) -> None:
        """Wait until an isolated suspect has ended, for `suspect_patience` seconds at most."""
        await self.isolation.wait_until_over(
            parent, self.settings.suspect_patience, closing=lambda: self.shutdown.closing
        )

    def log_fields(
        self, row: RunRow, step: str | None = None, attempt: int | None = None
    ) -> dict[str, Any]:
        """Return the extra fields of a log line about a run, or about one of its steps."""
        return {
            "run": row.id, "workflow": row.workflow, "queue": row.queue, "fence": abs(row.fence),
            "worker": row.worker or self.worker.id, "step": step, "attempt": attempt,
        }  # fmt: skip

    def redact_exception(self, error: BaseException | None) -> BaseException | None:
        """Return an error that may be logged. Remove its message unless values may be logged."""
        return redact(error, self.log_values)

    async def children_of(self, id: str) -> AsyncGenerator[RunRow, None]:
        """Yield a run's children, newest first. Read them from the store page by page."""
        before = None
        while rows := await self.read(
            self.store.runs, RunQuery(parent=id, limit=100, before_pk=before)
        ):
            for row in rows:
                before = row.pk
                yield row

    # -- requests from other processes

    async def cancel(self, id: str, why: str) -> Any:
        """Request the cancellation of a run and return the store's outcome.

        If the run executes here, do not wait for the next poll.
        """
        outcome = await self.writer.execute(Cancel(id, why))
        execution = self.executions.get(id)
        if execution is not None and not isinstance(outcome, Refused):
            cancellation.check(execution, why)
        return outcome

    # -- waiting

    async def wait_until_ended(self, id: str) -> RunOutcome:
        """Wait until a run has ended or is parked, in any process, and return its outcome.

        Raise StoreUnavailable if this engine closes meanwhile, and Draining if a signal's drain
        released the run. If an error evicted the run's execution here, raise that error.
        """
        while True:
            if self.shutdown.closing:
                raise StoreUnavailable(
                    f"Outlast was closed while run {id!r} was under way; it is resumable."
                )
            execution = self.executions.get(id)
            if execution is not None:
                outcome = await asyncio.shield(execution.ending.finished)
                if outcome.is_status:
                    return outcome
                if outcome.cause is not None:
                    raise outcome.cause
                if self.shutdown.closing:
                    raise StoreUnavailable(
                        f"Outlast was closed while run {id!r} was under way; it is resumable."
                    )
                if self.shutdown.signalled:
                    raise Draining(
                        f"this process is on its way out and gave run {id!r} back: it goes on elsewhere."
                    )
            seen = self.notifier.count
            row = await self.read(self.store.run, id)
            if row is None:
                error = encode_error(LookupError(f"run {id} is gone"), 1000)
                return RunOutcome(OutcomeKind.FAILED, error=error)
            if row.status in ENDED or row.status == "parked":
                return RunOutcome(OutcomeKind(row.status), row.value, row.error, row.reason)
            await self.notifier.wait(min(self.settings.poll, self._poll_seconds(id)), seen)

    def _poll_seconds(self, id: str) -> float:
        """Return how long a caller may still wait for a run that another process executes.

        Raise Draining when no time is left.
        """
        shutdown = self.shutdown
        if not shutdown.signalled or not shutdown.finished.done() or shutdown.ends_process:
            return math.inf
        # A server with its own signal handler waits for its requests, and nothing else would end
        # this one. Until then the request may get its answer.
        if shutdown.seconds_before_exit <= 0:
            raise Draining(f"this process is on its way out: run {id!r} is another's to execute.")
        return shutdown.seconds_before_exit

    async def while_parked(self, id: str) -> None:
        """Wait until a run is no longer parked."""
        while True:
            seen = self.notifier.count
            row = await self.read(self.store.run, id)
            if row is None or row.status != "parked":
                return
            await self.notifier.wait(self.settings.poll, seen)

    def _ring(self) -> None:
        self.wake_claimers()
        if (self.executions or self.accepts_drain_requests) and not self.shutdown.closing:
            self.track_task(self.loop.create_task(self.request_poller.poll_requests()))

    # -- small services

    async def read(self, fn: Callable[..., T], *args: Any) -> T:
        """Read from the store in a thread, for `store_patience` seconds at most."""
        deadline = time.monotonic() + self.settings.store_patience
        found: T = await self.in_thread(_until, deadline, fn, *args)
        self.worker.has_read()
        return found

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a blocking function in a thread. An inline engine calls it directly."""
        if self.inline:
            return fn(*args)
        # Use a new context: the store's work is not part of its caller's context or trace.
        return await self.pool.run(self.loop, Context(), fn, *args)

    def track_task(self, task: asyncio.Task[T], *, quiet: bool = False) -> asyncio.Task[T]:
        """Keep a reference to a task until it ends.

        Log its failure unless `quiet`: then the caller that awaits the task sees it.
        """
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if quiet else self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.shutdown.closing:
            log.error("a task of Outlast failed", exc_info=self.redact_exception(task.exception()))

    def check_size(self, text: str, what: str) -> None:
        if len(text) > self.settings.value_size_max:
            raise LimitExceeded("value_size_max", self.settings.value_size_max, len(text), what)

    def _on_lease_lost(self, worker: str) -> None:
        self.meters.lease_lost()
        for execution in list(self.executions.values()):
            if execution.row.worker == worker:
                execution.stop(EndReason.lost("its worker was taken for dead"))
        for consumer in self.consumers:
            consumer.lost(worker)
        self.in_flight.lose(worker)
        if not self.shutdown.begun:
            self.track_task(self.loop.create_task(self.worker.register(instead_of=worker)))


def _until(deadline: float, fn: Callable[..., T], *args: Any) -> T:
    with until(deadline):
        return fn(*args)
