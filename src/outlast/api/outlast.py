"""Define `Outlast`, the app a program opens: its options, its lifecycle and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from outlast.api import queries, run_actions
from outlast.api.app_config import AppConfig
from outlast.api.checkpoint import Checkpoint
from outlast.api.each import Each
from outlast.api.lifecycle import AppLifecycle
from outlast.api.map import MapJob
from outlast.api.queue import Queue
from outlast.api.run_filters import RunFilters, age_seconds
from outlast.api.session import Session
from outlast.api.session_info import SessionInfo, SessionOrder, list_sessions
from outlast.api.unit import Unit
from outlast.api.until_drain import until_drain
from outlast.codec.identifiers import check_queue_name
from outlast.codec.signature import NOT_GIVEN
from outlast.engine import actions
from outlast.engine.submission_windows import policy_of
from outlast.errors import OutlastError
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from decimal import Decimal

    from outlast.api.limiter import Limiter
    from outlast.api.run import Run
    from outlast.api.schedule import ScheduleInfo, ScheduleOptions
    from outlast.api.watch import Watch
    from outlast.api.workflow import Call, Workflow
    from outlast.engine.budgets import BudgetInfo
    from outlast.engine.bulk import BulkReport
    from outlast.engine.engine import Engine
    from outlast.engine.execution_services import EngineServices
    from outlast.engine.hooks import Hook
    from outlast.engine.inspection import EffectInfo, QueueInfo, RunInfo, WorkerInfo
    from outlast.engine.limiters import LimiterInfo
    from outlast.engine.submission import OnConflict
    from outlast.engine.submission_windows import RepeatPolicy
    from outlast.http.status import AppStatus
    from outlast.settings import Settings
    from outlast.settings.options import SettingsOptions
    from outlast.shutdown.cleanup import Hook as CleanupHook
    from outlast.shutdown.coordinator import ShutdownCoordinator
    from outlast.shutdown.report import DrainReport
    from outlast.store.pauses import PausedWorkflow
    from outlast.store.protocol import Store

R = TypeVar("R")
T = TypeVar("T")


class Outlast:
    """Execute durable runs in your own program. Use it as an async context manager:

        async with Outlast(store="sqlite:///agents.db") as app:
            run = await app.start(report("tides"), id="report-1")
            print(await run.result())

    With `worker=True` it also executes runs that other processes submit: runs of the given
    `workflows`, from its `queues`, up to `concurrency` at once.

    `lifespan(self)` is an async context manager around everything that executes here. Use it for
    pools and clients. Outlast calls `on_parked` and `on_dead` with a `RunInfo` when a run needs a
    person.

    Pass settings as keywords, as OUTLAST_… environment variables, or in files
    (`outlast doctor --settings` shows them). Leaving the block stops the work that executes here
    and releases its runs. They continue when they are started again.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        worker: bool = False,
        queues: str | Iterable[str] | None = None,
        workflows: Iterable[Workflow[..., Any]] = (),
        lifespan: Callable[[Outlast], AbstractAsyncContextManager[Any]] | None = None,
        on_parked: Hook | None = None,
        on_dead: Hook | None = None,
        **settings: Unpack[SettingsOptions],
    ) -> None:
        self._config = AppConfig(store, worker, queues, workflows, settings)
        self.settings: Settings = self._config.settings
        hooks = {"parked": on_parked, "dead": on_dead}
        self._lifecycle = AppLifecycle(
            self._config, lifespan, {what: hook for what, hook in hooks.items() if hook is not None}
        )

    def configure(
        self,
        store: str | Store | None = None,
        *,
        worker: bool | None = None,
        queues: str | Iterable[str] | None = None,
        workflows: Iterable[Workflow[..., Any]] = (),
        **settings: Unpack[SettingsOptions],
    ) -> None:
        """Override constructor options before opening. Options that are not named stay as they are.

        Raise OutlastError if this Outlast is open.
        """
        if self._lifecycle.is_open:
            raise OutlastError(
                "this Outlast is already open. Configure it before you open it, or pass the "
                "options to Outlast(...)."
            )
        self._config.update(store, worker, queues, workflows, settings)
        self.settings = self._config.settings

    async def __aenter__(self) -> Self:
        await self._lifecycle.open(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._lifecycle.close()

    @property
    def _open(self) -> Engine:
        return self._lifecycle.engine

    @property
    def _shutdown(self) -> ShutdownCoordinator:
        return self._lifecycle.shutdown

    # -- shutdown

    @property
    def draining(self) -> bool:
        """Return whether this process is draining."""
        return self._open.shutdown.begun

    async def drain(
        self, reason: str = "its program asked for it", *, grace: float | None = None
    ) -> DrainReport:
        """Drain this process and return the report.

        Steps in flight finish, runs are released, and nothing more is claimed. The drain takes at
        most `grace` seconds (by default the setting). This returns when the drain is over. The
        process keeps running, and this Outlast still answers queries and accepts submissions. All
        calls share one drain.
        """
        return await self._shutdown.drain(reason, grace=grace)

    async def wait_drain(self) -> str:
        """Wait until a drain begins and return its reason."""
        return await asyncio.shield(self._open.shutdown.announced)

    async def run_until_drain(self, coro: Coroutine[Any, Any, R]) -> R | None:
        """Execute a coroutine that may run forever, such as a `while True` agent.

        When a drain begins, the coroutine is cancelled, but a unit that it is in may end first.
        Return the coroutine's result, or None if the drain came first, even if the coroutine is
        still running when the drain is over.
        """
        return await until_drain(self._open, coro)

    def on_cleanup(self, fn: CleanupHook, *, timeout: float | None = None) -> CleanupHook:
        """Register a function to call when this Outlast closes, before its lifespan ends.

        Functions are called newest first, within the rest of the grace period and `timeout`
        seconds. A plain function is called in a thread. A failure is reported and does not stop the
        others.
        """
        self._lifecycle.cleanup.add(fn, timeout)
        return fn

    def unhealthy(self, reason: str | None) -> None:
        """Declare that this process should get no requests: `/ready` answers 503 with the reason.

        Pass None to declare it healthy again.
        """
        self.status_provider.unhealthy = reason

    async def drains(self, *, limit: int = 20) -> list[DrainReport]:
        """Return the latest drains of all workers, newest first."""
        return await queries.drains(self._open, limit)

    @property
    def status_provider(self) -> AppStatus:
        """Return the status that the HTTP routes show. Each opening has its own."""
        return self._lifecycle.status

    # -- starting

    async def start(
        self, call: Call[R], *, id: str | None = None, on_conflict: OnConflict = "raise"
    ) -> Run[R]:
        """Execute a run in this process, in the background.

        The id is the idempotency key. A finished run is not executed again, a run in flight is
        joined, and a run whose process died continues. Other arguments under the same id raise
        Conflict. With `on_conflict="join"` the existing run of this workflow is returned whatever
        its arguments, and keeps them. An id that belongs to another workflow always raises
        Conflict.
        """
        return await run_actions.start(self._open, call, id, on_conflict)

    async def submit(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        on_conflict: OnConflict = "raise",
        key: str | None = None,
        debounce: float | None = None,
        debounce_max: float | None = None,
        window: float | None = None,
        on_repeat: RepeatPolicy | None = None,
        by: str | None = None,
    ) -> Run[R]:
        """Queue a run for the workers. It is durable when this returns.

        Submitting the same id again returns the existing run. Other arguments raise Conflict unless
        `on_conflict` is "join"; see `start`. Higher priorities go first. Workers do not claim the
        run before `delay` seconds have passed. Raise Backpressure if the queue is full and has no
        room within `wait` seconds (`math.inf`: wait without limit). Runs of a queue with different
        keys take turns, and the limits per key of `Queue.limit` apply. `by` is recorded as who
        submitted the run.

        Of calls with the same id, or with the same workflow and key, only some run. With
        `debounce`, the last call of a burst runs, that many seconds after it, and at most
        `debounce_max` seconds after the first. With `window`, one call in that many seconds runs,
        and `on_repeat` says what the others do: "reject" raises AlreadySubmitted (the default),
        "join" returns the run, and "replace" takes its place. The run's id is the given id, or the
        workflow and the key, with the time at which the window began.
        """
        policy = policy_of(
            debounce=debounce,
            debounce_max=debounce_max,
            window=window,
            on_repeat=on_repeat,
            id=id,
            key=key,
            delay=delay,
            on_conflict=on_conflict,
        )
        if policy is not None:
            return await run_actions.submit_in_window(
                self._open,
                call,
                policy,
                id=id,
                key=key,
                queue=queue,
                priority=priority,
                delay=delay,
                wait=wait,
                by=by,
            )
        runs = await self.submit_many(
            [call],
            ids=None if id is None else [id],
            queue=queue,
            priority=priority,
            delay=delay,
            wait=wait,
            on_conflict=on_conflict,
            keys=None if key is None else [key],
            by=by,
        )
        return runs[0]

    async def submit_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str] | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        on_conflict: OnConflict = "raise",
        keys: Iterable[str | None] | None = None,
        by: str | None = None,
    ) -> list[Run[R]]:
        """Queue several runs in one commit, all or none. The options are those of `submit`.

        `keys` has the key of each run, or None for a run without one.
        """
        return await run_actions.submit(
            self._open,
            list(calls),
            ids,
            queue=queue,
            priority=priority,
            delay=delay,
            wait=wait,
            on_conflict=on_conflict,
            keys=keys,
            by=by,
        )

    # -- schedules

    async def schedule(
        self,
        name: str,
        call: Call[Any],
        *,
        by: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Run a call at the times of `cron`, or every `every` seconds.

        The schedule is in the store, and workers submit its runs. Setting the same one again
        changes nothing; another definition under the name replaces it. Each run's id is the name,
        "@" and the time in UTC. `by` records who set it. For the options see `Schedule`.
        """
        from outlast.api import schedule_definitions
        from outlast.api.schedule import Schedule

        return await schedule_definitions.set_schedule(
            self._open, name, call, Schedule(**options), by
        )

    async def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules, ordered by name."""
        from outlast.api import schedule_definitions

        return await schedule_definitions.list_schedules(self._open)

    async def pause_schedule(self, name: str, *, by: str | None = None) -> None:
        """Pause a schedule. Times that pass until it is resumed do not fire later."""
        from outlast.engine import schedule_actions

        await schedule_actions.pause(self._open, name, paused=True, by=by)

    async def resume_schedule(self, name: str, *, by: str | None = None) -> None:
        """Resume a paused schedule from now on."""
        from outlast.engine import schedule_actions

        await schedule_actions.pause(self._open, name, paused=False, by=by)

    async def trigger_schedule(self, name: str, *, by: str | None = None) -> str:
        """Submit a run of a schedule now, whatever its times, and return the run's id."""
        from outlast.engine import schedule_actions

        return await schedule_actions.trigger(self._open, name, by=by)

    async def backfill_schedule(
        self, name: str, start: datetime, end: datetime, *, by: str | None = None
    ) -> list[str]:
        """Submit the runs of all times of a schedule from `start` until before `end`.

        Return their ids. Runs that exist already stay as they are. Raise LimitExceeded for more
        than `submit_many_max` times.
        """
        from outlast.engine import schedule_actions

        return await schedule_actions.backfill(self._open, name, start, end, by=by)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its runs stay."""
        from outlast.engine import schedule_actions

        await schedule_actions.delete(self._open, name)

    # -- pausing workflows

    async def pause_workflow(
        self, workflow: Workflow[..., Any] | str, *, by: str | None = None
    ) -> None:
        """Stop claiming runs of a workflow, in all processes. Runs already executing continue.

        Workers notice it within `poll` seconds. Runs can still be submitted, and wait. A run that
        sleeps, waits or is interrupted waits too when it comes back. `by` is recorded.
        """
        from outlast.engine import workflow_pauses

        await workflow_pauses.set_paused(self._open, workflow, paused=True, by=by)

    async def resume_workflow(
        self, workflow: Workflow[..., Any] | str, *, by: str | None = None
    ) -> None:
        """Claim runs of a workflow again. Workers notice it within `poll` seconds."""
        from outlast.engine import workflow_pauses

        await workflow_pauses.set_paused(self._open, workflow, paused=False, by=by)

    async def paused_workflows(self) -> list[PausedWorkflow]:
        """Return the paused workflows, ordered by name."""
        from outlast.engine import workflow_pauses

        return await workflow_pauses.paused_workflows(self._open)

    # -- finding

    def get(self, workflow: Workflow[..., R], id: str) -> Run[R]:
        """Return the run with this id. The workflow gives its result a type."""
        return run_actions.handle_of(self._open, workflow, id)

    async def result(self, id: str, timeout: float | None = None) -> Any:
        """Wait for a run to end and return its result as plain JSON.

        Raise a RunError or the workflow's exception if the run has no result, UnknownRun if there
        is no such run, and TimeoutError after `timeout` seconds.
        """
        return await queries.result_of(self._open, id, timeout)

    async def runs(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> list[RunInfo]:
        """Return runs, newest first.

        `status` may include `delayed`: queued runs that are not due yet, which `queued` also
        includes. `prefix` is what the id starts with. Ages are seconds or timedeltas since
        creation. `items=True` returns plain work items instead of runs, and None returns both.
        `undoing=True` returns only runs that are being compensated. `before` is the id of a run:
        only older runs are returned, so the last id of one page begins the next one.
        """
        return await queries.runs(self._open, filters, limit, before)

    def watch(self, id: str, stream: str | None = None, *, after: str | None = None) -> Watch:
        """Return the events of a stream of a run, from any process, until the run ends.

            async for event in app.watch("report-1", "answer"):
                match event:
                    case DataEvent(value=token): show(token)
                    case ResetEvent(): clear()

        A `DataEvent` has a value, a `ResetEvent` says that what was received so far no longer
        holds, and an `EndEvent` says how the run ended. Pass the `cursor` of an event as `after` to
        receive what follows it, from any process. Raise BadCursor if it belongs to another run or
        stream. Without a stream, the values are documents of the run itself: its status, the
        entries of its journal, and its executions.
        """
        from outlast.api.watch import watch

        return watch(self._outside("watch", "a step"), id, stream, after)

    async def journal(self, id: str) -> list[Entry]:
        """Return every journal entry of a run, in order."""
        return await queries.journal_of(self._open, id)

    # -- acting on runs

    async def send(
        self,
        id: str,
        name: str,
        value: Any = None,
        *,
        message_id: str | None = None,
        by: str | None = None,
    ) -> None:
        """Send a message to a run. It is durable when this returns.

        A `receive(name)` of the run takes it, now or later. Sending the same message_id again is
        harmless. Raise UnknownRun, WrongStatus if the run has ended or the id is a queue item, or
        LimitExceeded for more than `messages_max` messages or one longer than `message_size_max`.
        `by` is recorded as who sent it.
        """
        await actions.send(self._open, id, name, value, message_id, by=by)

    async def cancel(
        self, id: str, why: str = "cancelled by its user", *, by: str | None = None
    ) -> str:
        """Ask a run to end and return its status afterwards.

        The run receives the reason, its `finally` blocks execute, and no new step starts. The
        recorded reason names `by`.
        """
        return await actions.cancel(self._open, id, why, by=by)

    async def retry(self, id: str, *, token: str | None = None, by: str | None = None) -> None:
        """Queue a failed, cancelled or dead run again, from the step that ended it.

        A parent retries its children. A child can be retried on its own only while its parent waits
        for it, or to continue its compensation. Otherwise this raises WrongStatus, which names the
        run to retry. A repeat with the same `token` does nothing, even if the run has ended again.
        `by` is recorded in the journal.
        """
        await actions.retry(self._open, id, token, by=by)

    async def resume(self, id: str, *, token: str | None = None, by: str | None = None) -> None:
        """Queue a parked run again.

        A repeat with the same `token` does nothing, even if the run was parked again. `by` is
        recorded in the journal.
        """
        await actions.resume(self._open, id, token, by=by)

    async def decide(
        self,
        id: str,
        effect: str,
        *,
        happened: Any = NOT_GIVEN,
        did_not: bool = False,
        compensate: bool = False,
        result: Any = None,
        intent: int | None = None,
        limit: Mapping[str, float | Decimal] | None = None,
        token: str | None = None,
        by: str | None = None,
    ) -> None:
        """Decide what a parked run waits for, so that it continues.

        `effect` is the call site of an effect whose outcome is unknown, as `show` and the run's
        `reason` name it, or its name if only one effect has that name. `budget:NAME` is a budget
        that is exhausted. Pass exactly one of:

        - `happened=RESULT`: it happened, with that result.
        - `did_not=True`: it did not happen, and is executed again.
        - `compensate=True`: the run is compensated, and this effect with it, as if it had happened
          with `result`.
        - `limit={"usd": 10}`: the budget's new limit. All runs that wait for it continue.

        `intent` is the number of the intent (`EffectInfo.intent`). It is required where there were
        several. A repeat with the same `token` does nothing, even if the run was parked again.
        `by` is recorded with the decision.
        Raise UnknownEffect, WrongStatus, SettingsError or Unrecordable before anything is written.
        """
        await actions.decide(
            self._open,
            id,
            effect,
            token,
            by=by,
            happened=happened,
            did_not=did_not,
            compensate=compensate,
            result=result,
            intent=intent,
            limit=limit,
        )

    async def effects(self, id: str) -> list[EffectInfo]:
        """Return the effects that a run performed or intended to perform, oldest first."""
        return await queries.effects_of(self._open, id)

    async def prune(
        self, older_than: timedelta | float, *, batch: int = 500, dead: bool = False
    ) -> int:
        """Delete runs that ended longer ago than `older_than`, with their journals, in batches.

        Return how many runs were deleted. Expired sessions are deleted too, and not counted. Dead
        letters stay, with their ancestors and descendants, because their effects are compensated
        only when they are cancelled. With `dead` they are deleted too and their effects stand,
        except for a run whose compensation has begun: it stays until it is compensated.
        """
        return await actions.prune(self._open, age_seconds(older_than), batch, dead=dead)

    async def bulk(
        self,
        action: Literal["cancel", "retry", "resume", "prune"],
        *,
        limit: int | None = None,
        why: str = "cancelled with others",
        dry_run: bool = False,
        token: str | None = None,
        by: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> BulkReport:
        """Cancel, retry, resume or prune all runs that match, newest first, in batches.

        The filters are those of `runs`; at least one is required. Without a status, "retry" leaves
        cancelled runs alone, and "cancel" and "prune" leave dead letters alone. `dry_run` only
        counts. A run that changed meanwhile is skipped. A repeat after a crash continues, and with
        the same `token` no run is retried or resumed twice.
        """
        from outlast.engine.bulk import act_on_all, bulk_action

        query = queries.run_query(self._open, filters)
        return await act_on_all(
            self._open,
            bulk_action(action),
            query,
            why=why,
            dry_run=dry_run,
            limit=limit,
            token=token,
            by=by,
        )

    # -- queues and workers

    def queue(self, name: str) -> Queue:
        """Return the queue of plain work items with this name."""
        return Queue(lambda: self._open, check_queue_name(name, self.settings.name_length_max))

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its contents and limits."""
        return await queries.queues(self._open)

    async def workers(self) -> list[WorkerInfo]:
        """Return every process that has the store open for work."""
        return await queries.workers(self._open)

    # -- plain scripts

    def each(
        self,
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
    ) -> AsyncIterator[T]:
        """Iterate over items one by one, and resume after a death or a drain.

        Use it as `async for item in app.each(...)`. An item is done when the loop asks for the next
        one, and is skipped from then on. `key` identifies an item across restarts; text and whole
        numbers are their own keys. Once a drain has begun, the next item raises Draining: a drain
        never ends the loop normally. Raise LeaseLost if another process has taken over.
        """
        return Each(self._outside("each").services, items, id=id, key=key)

    @overload
    async def map(
        self,
        fn: Callable[[T], Awaitable[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, R]: ...
    @overload
    async def map(
        self,
        fn: Callable[[T], R],
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, R]: ...
    async def map(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        id: str,
        key: Callable[[Any], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, Any]:
        """Call a function for every item and return the results by item key, in item order.

        At most `concurrency` calls run at once (by default the setting). Results are recorded: the
        same call again processes only the remaining items. A plain function is called in a thread.
        If an item raises, its exception is raised here after the other calls in flight have ended.
        If a drain begins, Draining is raised.
        """
        services = self._outside("map").services
        return await MapJob(services, fn, items, id=id, key=key, concurrency=concurrency).results()

    def unit(self, name: str) -> Unit:
        """Return a unit: work that a drain does not interrupt halfway, in a run or outside one.

        Use it as `async with app.unit("order"):`, or with `with`.
        """
        return Unit(name, lambda: self._open)

    # -- sessions

    def session(
        self,
        id: str,
        *,
        ttl: float | EllipsisType | None = ...,
        fields_max: int | None = None,
    ) -> Session:
        """Return a session: state that outlives its process, such as a user's or a conversation's.

        Every process that has the store open shares it. Each access keeps it for `ttl` seconds
        more. None keeps it forever. Without `ttl`, an access keeps it for at least a day and never
        shortens its expiry. In a workflow's own code each call on the session is recorded.

        It may have `fields_max` fields and lists instead of the setting `session_fields_max`.
        """
        return Session(id, ttl, self.settings, lambda: self._open, fields_max=fields_max)

    async def sessions(
        self,
        prefix: str = "",
        *,
        limit: int = 100,
        order: SessionOrder = "updated",
        after: str | None = None,
    ) -> list[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, most recently changed first.

        `order="id"` lists them in the order of their ids, beginning after the id `after`. Only the
        sessions with the prefix are read. Each names at most 100 fields and 100 lists. Listing does
        not extend a session's expiry.
        """
        engine = self._outside("sessions", "a step")
        return await list_sessions(engine, prefix, limit, order, after)

    def limiter(self, name: str, *, hold: float = 5.0, **rates: str) -> Limiter:
        """Return a limiter for code outside of runs. It shares what `outlast.limiter` of this name
        uses.

        A use waits as long as it has to. Raise SettingsError for an invalid rate.
        """
        from outlast.api.limiter import make_limiter

        def find() -> EngineServices:
            return self._outside("limiter", "a step").services

        return make_limiter(name, hold, rates, self.settings.name_length_max, find)

    async def budgets(
        self, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[BudgetInfo]:
        """Return budgets that were used lately, ordered by id. Leave out damaged ones.

        Their ids begin with `prefix`, such as `key:` or `run:r-1/`. To get more than `limit`, pass
        the last id as `after`.
        """
        page = await self._outside("budgets", "a step").budgets.page(after, limit, prefix)
        return page.budgets

    async def raise_budget(
        self, id: str, limits: Mapping[str, float | Decimal], *, by: str | None = None
    ) -> BudgetInfo:
        """Set limits of a budget, and resume the runs that wait for it.

            await app.raise_budget("key:customer-7/customer", {"usd": 100})

        The limits replace those of the code. A repeat is harmless. Raise SettingsError if there is
        no such budget or limit.
        """
        engine = self._outside("raise_budget", "a step")
        return await engine.budgets.raise_to(id, limits, actions.checked_by(engine, by))

    async def limiters(self) -> list[LimiterInfo]:
        """Return all limiters that were used lately, ordered by name."""
        return await self._outside("limiters", "a step").limiters.all()

    def checkpoint(self, task_id: str, *, ttl: float | None = None) -> Checkpoint:
        """Return a checkpoint: the saved position of a script that has no workflow.

        It stays until it is cleared, or until it is not used for `ttl` seconds.
        """
        return Checkpoint(task_id, ttl, self.settings, lambda: self._open)

    def _outside(self, what: str, instead: str | None = None) -> Engine:
        """Return the engine. Raise NotInStep in a workflow's own code."""
        return self._lifecycle.outside(what, instead)
