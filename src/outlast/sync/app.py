"""Define `Outlast` for sync programs. Each call goes through the portal."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from outlast.api import outlast as core
from outlast.api.internals import internals
from outlast.errors import OutlastError
from outlast.shutdown.process import ProcessRole, ProcessShutdown
from outlast.sync.batch import Each, map_in
from outlast.sync.blocking import blocking, giving_runs
from outlast.sync.items import Queue
from outlast.sync.portal import Portal, check_may_block
from outlast.sync.sessions import Checkpoint, Session

if TYPE_CHECKING:
    from outlast.api.limiter import Limiter
    from outlast.api.run import Run as AsyncRun
    from outlast.api.unit import Unit
    from outlast.api.workflow import Workflow
    from outlast.engine.hooks import Hook
    from outlast.http.status import AppStatus
    from outlast.settings import Settings
    from outlast.settings.options import SettingsOptions
    from outlast.shutdown.cleanup import Hook as CleanupHook
    from outlast.store.protocol import Store
    from outlast.sync.watch import Watch

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


async def get(app: core.Outlast, workflow: Workflow[..., R], id: str) -> AsyncRun[R]:
    """Return the run with this id. The workflow gives its result a type."""
    return app.get(workflow, id)


class Outlast:
    """Execute durable runs in a sync program. Use it as a context manager:

        with Outlast(store="sqlite:///agents.db") as app:
            run = app.start(report("tides"), id="report-1")
            print(run.result())

    Any thread may use it. Runs execute on an event loop in a background thread, sync workflows and
    steps in separate threads. Pass settings as keywords, as OUTLAST_… environment variables, or
    in files (`outlast doctor --settings` shows them). Leaving the block stops the work that
    executes here and releases its runs. They continue when they are started again.

    Its methods take the same arguments as those of `outlast.Outlast`, and block. `start`, `submit`,
    `submit_many` and `get` return runs of this module.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        worker: bool = False,
        queues: str | Iterable[str] | None = None,
        workflows: Iterable[Workflow[..., Any]] = (),
        on_parked: Hook | None = None,
        on_dead: Hook | None = None,
        **settings: Unpack[SettingsOptions],
    ) -> None:
        self._async = core.Outlast(
            store,
            worker=worker,
            queues=queues,
            workflows=workflows,
            on_parked=on_parked,
            on_dead=on_dead,
            **settings,
        )
        internals(self._async).set_process(ProcessRole.PORTAL, leave_block=self._leave_in_thread)
        self._portal: Portal | None = None
        self._process: ProcessShutdown | None = None
        self._leaving = threading.Lock()
        self._left = False

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
        self._async.configure(store, worker=worker, queues=queues, workflows=workflows, **settings)

    @property
    def settings(self) -> Settings:
        """Return the effective settings, from arguments, environment, files and defaults."""
        return self._async.settings

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise OutlastError("this Outlast is already open. Create another one.")
        portal = Portal()
        try:
            portal.call(self._async.__aenter__)
        except BaseException:
            portal.close(self.settings.close_timeout)
            raise
        self._portal = portal
        self._leaving = threading.Lock()
        self._left = False
        if self.settings.signals:
            self._process = internals(self._async).shutdown.process
            # Signal handlers are installed in the program's own thread, not in the portal's.
            self._process.install(self.settings.grace)
        return self

    def _leave_in_thread(self) -> threading.Thread:
        """Leave in a thread of its own, because a signal is to end the program.

        Called on the loop. The signal then ends the program once Outlast is left, whatever the main
        thread does.
        """
        thread = threading.Thread(target=self._leave_by_signal, name="outlast-leave", daemon=True)
        thread.start()
        return thread

    def _leave_by_signal(self) -> None:
        portal, process = self._portal, self._process
        if portal is not None and process is not None:
            with self._leaving:
                if self._leave(portal):
                    process.raise_again()

    def _leave(self, portal: Portal) -> bool:
        """Close the app once and return whether this call did it.

        The caller holds `_leaving`, so that another thread waits until the app is closed.
        """
        if self._left:
            return False
        self._left = True
        portal.call(internals(self._async).close, left_by=threading.get_ident())
        return True

    def __exit__(self, *exc: object) -> None:
        portal, self._portal = self._open, None
        process, self._process = self._process, None
        left = not self._left
        try:
            with self._leaving:
                left = self._leave(portal)
        finally:
            portal.close(self.settings.close_timeout)
            if process is not None:
                process.restore()
                if left:
                    process.raise_again()

    start = giving_runs(core.Outlast.start)
    submit = giving_runs(core.Outlast.submit)
    submit_many = giving_runs(core.Outlast.submit_many)
    get = giving_runs(get)
    result = blocking(core.Outlast.result)
    runs = blocking(core.Outlast.runs)
    journal = blocking(core.Outlast.journal)
    send = blocking(core.Outlast.send)
    cancel = blocking(core.Outlast.cancel)
    retry = blocking(core.Outlast.retry)
    resume = blocking(core.Outlast.resume)
    decide = blocking(core.Outlast.decide)
    bulk = blocking(core.Outlast.bulk)
    effects = blocking(core.Outlast.effects)
    prune = blocking(core.Outlast.prune)
    sessions = blocking(core.Outlast.sessions)
    queues = blocking(core.Outlast.queues)
    limiters = blocking(core.Outlast.limiters)
    budgets = blocking(core.Outlast.budgets)
    raise_budget = blocking(core.Outlast.raise_budget)
    pause_workflow = blocking(core.Outlast.pause_workflow)
    resume_workflow = blocking(core.Outlast.resume_workflow)
    paused_workflows = blocking(core.Outlast.paused_workflows)
    schedule = blocking(core.Outlast.schedule)
    schedules = blocking(core.Outlast.schedules)
    pause_schedule = blocking(core.Outlast.pause_schedule)
    resume_schedule = blocking(core.Outlast.resume_schedule)
    trigger_schedule = blocking(core.Outlast.trigger_schedule)
    backfill_schedule = blocking(core.Outlast.backfill_schedule)
    delete_schedule = blocking(core.Outlast.delete_schedule)
    workers = blocking(core.Outlast.workers)
    drain = blocking(core.Outlast.drain)
    drains = blocking(core.Outlast.drains)
    wait_drain = blocking(core.Outlast.wait_drain)
    run_until_drain = blocking(core.Outlast.run_until_drain)

    @property
    def status_provider(self) -> AppStatus:
        """Return the status that the HTTP routes show."""
        return self._async.status_provider

    @property
    def draining(self) -> bool:
        """Return whether this process is draining."""
        return self._async.draining

    def on_cleanup(self, fn: CleanupHook, *, timeout: float | None = None) -> CleanupHook:
        """Register a function to call when this Outlast closes.

        Functions are called newest first, within the rest of the grace period and `timeout`
        seconds.
        """
        return self._async.on_cleanup(fn, timeout=timeout)

    def unhealthy(self, reason: str | None) -> None:
        """Declare that this process should get no requests: `/ready` answers 503 with the reason.

        Pass None to declare it healthy again.
        """
        self._async.unhealthy(reason)

    def each(
        self,
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
    ) -> Iterator[T]:
        """Iterate over items one by one, and resume after a death or a drain.

        Use it as `for item in app.each(...)`. An item is done when the loop asks for the next one,
        and is skipped from then on. `key` identifies an item across restarts; text and whole
        numbers are their own keys. Once a drain has begun, the next item raises Draining. The items
        are read in this thread.
        """
        return Each(
            self._open, internals(self._async).outside("each").services, items, id=id, key=key
        )

    @overload
    def map(
        self,
        fn: Callable[[T], Awaitable[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, R]: ...
    @overload
    def map(
        self,
        fn: Callable[[T], R],
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, R]: ...
    def map(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        id: str,
        key: Callable[[Any], str] | None = None,
        concurrency: int | None = None,
    ) -> dict[str, Any]:
        """Call a function for every item and return the results by item key, in item order.

        At most `concurrency` threads call it at once (by default the setting). Results are
        recorded: the same call again processes only the remaining items.
        """
        portal, services = self._open, internals(self._async).outside("map").services
        return map_in(portal, services, fn, items, id=id, key=key, concurrency=concurrency)

    def unit(self, name: str) -> Unit:
        """Return a unit: work that a drain does not interrupt halfway, in a run or outside one.

        Use it as `with app.unit("order"):`.
        """
        return self._async.unit(name)

    def watch(self, id: str, stream: str | None = None, *, after: str | None = None) -> Watch:
        """Return the events of a stream of a run, from any process, until the run ends.

            for event in app.watch("report-1", "answer"):
                match event:
                    case DataEvent(value=token): show(token)
                    case ResetEvent(): clear()

        A `DataEvent` has a value, a `ResetEvent` says that what was received so far no longer
        holds, and an `EndEvent` says how the run ended. Pass the `cursor` of an event as `after` to
        receive what follows it, from any process. Raise BadCursor if it belongs to another run or
        stream. Without a stream, the values are documents of the run itself: its status, the
        entries of its journal, and its executions.
        """
        from outlast.sync.watch import Watch

        portal = self._open
        check_may_block()
        return Watch(portal, self._async.watch(id, stream, after=after))

    def queue(self, name: str) -> Queue:
        """Return the queue of plain work items with this name."""
        return Queue(self._open, self._async.queue(name))

    def limiter(self, name: str, *, hold: float = 5.0, **rates: str) -> Limiter:
        """Return a limiter for code outside of runs. It shares what `limiter` of this name uses.

        A use waits as long as it has to. Raise SettingsError for an invalid rate.
        """
        return self._async.limiter(name, hold=hold, **rates)

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
        return Session(self._open, self._async.session(id, ttl=ttl, fields_max=fields_max))

    def checkpoint(self, task_id: str, *, ttl: float | None = None) -> Checkpoint:
        """Return a checkpoint: the saved position of a script that has no workflow.

        It stays until it is cleared, or until it is not used for `ttl` seconds.
        """
        return Checkpoint(self._open, self._async.checkpoint(task_id, ttl=ttl))

    @property
    def _open(self) -> Portal:
        if self._portal is None:
            raise OutlastError("this Outlast is not open: use `with Outlast(...) as app:`.")
        return self._portal
