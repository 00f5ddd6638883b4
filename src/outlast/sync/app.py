"""`Outlast` and `Run` for sync programs: the async ones, each call through the portal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from outlast.app import outlast as core
from outlast.app.hooks import Hook
from outlast.app.info import RunInfo
from outlast.app.settings import Settings
from outlast.define.workflow import Workflow
from outlast.errors import OutlastError
from outlast.store.protocol import Store
from outlast.sync.items import Queue
from outlast.sync.portal import Portal

P = ParamSpec("P")
R = TypeVar("R")


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
def giving_runs(method: Method[P, list[core.Run[R]]]) -> Callable[Concatenate[Outlast, P], list[Run[R]]]: ...
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
    threads of their own. Settings are keywords here or OUTLAST_… in the environment. Leaving the block stops what executes
    here and gives the runs back; they go on where they are started again.
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
        **settings: Any,
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
        self._portal: Portal | None = None

    def configure(
        self,
        store: str | Store | None = None,
        *,
        worker: bool | None = None,
        queues: str | Iterable[str] | None = None,
        workflows: Iterable[Workflow[..., Any]] = (),
        **settings: Any,
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
        self._portal = portal
        return self

    def __exit__(self, *exc: object) -> None:
        portal, self._portal = self._open, None
        try:
            portal.call(self._app.__aexit__, *exc)
        finally:
            portal.close(self.settings.close_timeout)

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
    prune = blocking(core.Outlast.prune)
    queues = blocking(core.Outlast.queues)
    workers = blocking(core.Outlast.workers)

    def queue(self, name: str) -> Queue:
        """A queue of plain work items."""
        return Queue(self._open, self._app.queue(name))

    @property
    def _open(self) -> Portal:
        if self._portal is None:
            raise OutlastError("this Outlast is not open: use `with Outlast(...) as app:`.")
        return self._portal
