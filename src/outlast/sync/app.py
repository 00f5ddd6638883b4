"""`Outlast` and `Run` for sync programs: the async ones, each call through the portal."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Iterator
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from outlast.api import outlast as core
from outlast.api.info import RunInfo
from outlast.api.unit import Unit
from outlast.api.workflow import Workflow
from outlast.engine.hooks import Hook
from outlast.errors import OutlastError
from outlast.settings import Settings
from outlast.settings.options import SettingsOptions
from outlast.shutdown.cleanup import Hook as CleanupHook
from outlast.shutdown.process_shutdown import ProcessShutdown
from outlast.store.protocol import Store
from outlast.sync.batch import Each, map_in
from outlast.sync.items import Queue
from outlast.sync.portal import Portal
from outlast.sync.sessions import Checkpoint, Session

if TYPE_CHECKING:
    from outlast.engine.status import EngineStatus

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Run(Generic[R]):
    """A run, wherever it executes. `run.result()` is its workflow's result, or raises how it ended."""

    def __init__(self, portal: Portal, run: core.Run[R]) -> None:
        self._portal, self._run = portal, run

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end. A failure is raised as the workflow's own exception where that is safe, else as RunFailed;
        RunCancelled, RunTimeout, RunParked and RunDead say how else it ended. TimeoutError after `timeout` seconds."""
        return self._portal.call(self._run.result, timeout)

    def info(self) -> RunInfo:
        """How it stands now."""
        return self._portal.call(self._run.info)

    def __repr__(self) -> str:
        return repr(self._run)


Method = Callable[Concatenate[core.Outlast, P], Coroutine[Any, Any, R]]
"""A method of the async Outlast."""


def blocking(method: Method[P, R]) -> Callable[Concatenate[Outlast, P], R]:
    """The same method of the sync Outlast: it waits."""

    @functools.wraps(method)
    def call(self: Outlast, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._open.call(method, self._app, *args, **kwargs)

    return call


@overload
def giving_runs(method: Method[P, core.Run[R]]) -> Callable[Concatenate[Outlast, P], Run[R]]: ...
@overload
def giving_runs(
    method: Method[P, list[core.Run[R]]],
) -> Callable[Concatenate[Outlast, P], list[Run[R]]]: ...
def giving_runs(method: Method[P, Any]) -> Callable[Concatenate[Outlast, P], Any]:
    """The same, with sync runs for async ones."""
    wait = blocking(method)

    @functools.wraps(method)
    def call(self: Outlast, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = wait(self, *args, **kwargs)
        if isinstance(answer, list):
            return [Run(self._open, run) for run in answer]
        return Run(self._open, answer)

    return call


async def get(app: core.Outlast, workflow: Workflow[..., R], id: str) -> core.Run[R]:
    """A run by its id; its result is typed by the workflow."""
    return app.get(workflow, id)


class Outlast:
    """Durable runs in a sync program. A context manager:

        with Outlast(store="sqlite:///agents.db") as app:
            run = app.start(report("tides"), id="report-1")
            print(run.result())

    It may be used from any thread. The runs execute on an event loop in a background thread, sync workflows and steps in
    threads of their own. Settings are keywords here, OUTLAST_… in the environment, or in files (`outlast doctor --settings`
    shows them). Leaving the block stops what executes here and gives the runs back; they go on where they are started again.

    These are the methods of `outlast.Outlast`, with the same arguments, and wait: `start`, `submit`, `submit_many`, `get`, `result`, `runs`,
    `journal`, `send`, `cancel`, `retry`, `resume`, `decide`, `effects`, `prune`, `sessions`, `queues`, `workers`, `drain`, `drains`, `wait_drain`
    and `run_until_drain`. The first four give runs of this module.
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
        self._app = core.Outlast(
            store,
            worker=worker,
            queues=queues,
            workflows=workflows,
            on_parked=on_parked,
            on_dead=on_dead,
            **settings,
        )
        self._app._lifecycle.is_portal = True
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
        """Before it is opened: say some things otherwise than when it was made. What is not named stays."""
        self._app.configure(store, worker=worker, queues=queues, workflows=workflows, **settings)

    @property
    def settings(self) -> Settings:
        """What was given here or in the environment, and the defaults."""
        return self._app.settings

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise OutlastError("this Outlast is open already; make another one.")
        portal = Portal()
        try:
            portal.call(self._app.__aenter__)
        except BaseException:
            portal.close(self.settings.close_timeout)
            raise
        self._portal, self._leaving, self._left = portal, threading.Lock(), False
        if self.settings.signals:
            self._process = self._app._lifecycle.process
            assert self._process is not None
            engine = self._app._open
            self._process.again = lambda: engine.loop.call_soon_threadsafe(self._drained, None)
            self._process.install()
            engine.drain.over.add_done_callback(self._drained)
        return self

    def _drained(self, _: object) -> None:
        """On the loop. A signal that would have ended the program does so when it is left, whatever its own thread does."""
        process, engine = self._process, self._app._engine
        if process is not None and engine is not None and process.ends and engine.drain.over.done():
            threading.Thread(
                target=self._leave_by_signal, name="outlast-leave", daemon=True
            ).start()

    def _leave_by_signal(self) -> None:
        portal, process = self._portal, self._process
        if portal is not None and process is not None:
            with self._leaving:
                if self._leave(portal):
                    process.raise_again()

    def _leave(self, portal: Portal, *exc: object) -> bool:
        """Once, by whichever thread is first: whether this was the one. With `_leaving` held, so that the other waits for it."""
        if self._left:
            return False
        self._left = True
        self._app._open.closing_thread = threading.get_ident()
        portal.call(self._app.__aexit__, *exc)
        return True

    def __exit__(self, *exc: object) -> None:
        portal, self._portal = self._open, None
        process, self._process = self._process, None
        left = not self._left
        try:
            with self._leaving:
                left = self._leave(portal, *exc)
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
    effects = blocking(core.Outlast.effects)
    prune = blocking(core.Outlast.prune)
    sessions = blocking(core.Outlast.sessions)
    queues = blocking(core.Outlast.queues)
    workers = blocking(core.Outlast.workers)
    drain = blocking(core.Outlast.drain)
    drains = blocking(core.Outlast.drains)
    wait_drain = blocking(core.Outlast.wait_drain)
    run_until_drain = blocking(core.Outlast.run_until_drain)

    @property
    def status_provider(self) -> EngineStatus:
        """What the HTTP routes show."""
        return self._app.status_provider

    @property
    def draining(self) -> bool:
        """Whether this process is on its way out."""
        return self._app.draining

    def on_cleanup(self, fn: CleanupHook, *, timeout: float | None = None) -> CleanupHook:
        """Have something done when this Outlast is left: newest first, within what is left of the grace and `timeout` seconds."""
        return self._app.on_cleanup(fn, timeout=timeout)

    def unhealthy(self, reason: str | None) -> None:
        """Say that this process should get no requests (`/ready` says 503, with the reason); None: that it may again."""
        self._app.unhealthy(reason)

    def each(
        self,
        items: Iterable[T] | AsyncIterable[T],
        *,
        id: str,
        key: Callable[[T], str] | None = None,
    ) -> Iterator[T]:
        """Go through items one after the other, and go on where a death or a drain ended it: `for item in app.each(...)`.

        An item is done when the next is asked for, and skipped from then on. `key` says what an item is known by from life to
        life; text and whole numbers are their own keys. Draining is raised at the next item when a drain has begun. The items are
        read in this thread.
        """
        return Each(self._open, self._app._outside("each"), items, id=id, key=key)

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
        """Call a function for every item, in `concurrency` threads at once (by default the setting), and keep what it returns: a
        dict by the items' keys, in their order. The same call again has only the rest done."""
        portal, engine = self._open, self._app._outside("map")
        return map_in(portal, engine, fn, items, id=id, key=key, concurrency=concurrency)

    def unit(self, name: str) -> Unit:
        """A part of the work that a drain does not cut in two, in a run or outside: `with app.unit("order"):`."""
        return self._app.unit(name)

    def queue(self, name: str) -> Queue:
        """A queue of plain work items."""
        return Queue(self._open, self._app.queue(name))

    def session(self, id: str, *, ttl: float | EllipsisType | None = ...) -> Session:
        """State that outlives its process, shared by every process that has the store open: a user's, a conversation's. Each access keeps
        it for `ttl` seconds more; None: for ever; not said: for a day at least, without shortening what it has. In a workflow's own code each call of it is recorded."""
        return Session(self._open, self._app.session(id, ttl=ttl))

    def checkpoint(self, task_id: str, *, ttl: float | None = None) -> Checkpoint:
        """Where a script was, for one without a workflow. It stays until it is cleared, or is not used for `ttl` seconds."""
        return Checkpoint(self._open, self._app.checkpoint(task_id, ttl=ttl))

    @property
    def _open(self) -> Portal:
        if self._portal is None:
            raise OutlastError("this Outlast is not open: use `with Outlast(...) as app:`.")
        return self._portal
