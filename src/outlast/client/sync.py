"""Define `Client` for sync programs: the async one, called through a portal.

from outlast.client.sync import Client

with Client("https://agents.example.com", token="…") as client:
    run = client.submit(report("tides"), id="report-1")
    print(run.result())
"""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from outlast.api.workflow import Workflow
from outlast.client import client as core
from outlast.client.queue import Queue as AsyncQueue
from outlast.engine.queue_limits import UNCHANGED
from outlast.errors import OutlastError
from outlast.sync.blocking import blocking, giving_runs
from outlast.sync.portal import Portal
from outlast.sync.run_handle import Run
from outlast.sync.sessions import Checkpoint, Session
from outlast.sync.watch import Watch

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
R = TypeVar("R")
CLOSE_SECONDS = 5.0


class Queue:
    """A queue of plain items: `client.queue("emails").put({"to": "ann"})`.

    Items are claimed and consumed where the store is open, because a claim is a lease.
    """

    def __init__(self, portal: Portal, queue: AsyncQueue) -> None:
        self._portal, self._queue = portal, queue

    @property
    def name(self) -> str:
        """Return the queue's name."""
        return self._queue.name

    def put(
        self,
        payload: Any,
        *,
        id: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        key: str | None = None,
    ) -> str:
        """Put an item and return its id. It is durable when this returns."""
        return self._portal.call(
            self._queue.put, payload, id=id, priority=priority, delay=delay, wait=wait, key=key
        )

    def put_many(
        self,
        payloads: Iterable[Any],
        *,
        ids: Iterable[str] | None = None,
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        keys: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Put several items in one commit, all of them or none, and return their ids."""
        return self._portal.call(
            self._queue.put_many,
            payloads,
            ids=ids,
            priority=priority,
            delay=delay,
            wait=wait,
            keys=keys,
        )

    def size(self) -> int:
        """Return how many items and runs are ready."""
        return self._portal.call(self._queue.size)

    def limit(
        self,
        *,
        depth: int | None = UNCHANGED,
        concurrency: int | None = UNCHANGED,
        per_key_concurrency: int | None = UNCHANGED,
        per_key_rate: str | None = UNCHANGED,
    ) -> None:
        """Set the queue's own limits, across all processes. A limit that is not named stays."""
        self._portal.call(
            self._queue.limit,
            depth=depth,
            concurrency=concurrency,
            per_key_concurrency=per_key_concurrency,
            per_key_rate=per_key_rate,
        )

    def pause(self) -> None:
        """Stop claiming from the queue, in all processes. Runs already executing continue."""
        self._portal.call(self._queue.pause)

    def resume(self) -> None:
        """Claim from the queue again, within its limits."""
        self._portal.call(self._queue.resume)

    def __repr__(self) -> str:
        return repr(self._queue)


class Client:
    """Submit, follow and control runs over the HTTP API. Use it as a context manager:

        with Client("https://agents.example.com", token="…") as client:
            run = client.submit(report("tides"), id="report-1")
            print(run.result())

    Any thread may use it. The methods take the same arguments as those of
    `outlast.client.Client`, and block. Requests are made on an event loop in a background thread.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        timeout: float | None = None,
        patience: float | None = None,
        backoff: float | None = None,
        backoff_max: float | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._async = core.Client(
            url,
            token=token,
            timeout=timeout,
            patience=patience,
            backoff=backoff,
            backoff_max=backoff_max,
            transport=transport,
        )
        self._portal: Portal | None = None

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise OutlastError("this Client is already open. Create another one.")
        portal = Portal()
        try:
            portal.call(self._async.__aenter__)
        except BaseException:
            portal.close(CLOSE_SECONDS)
            raise
        self._portal = portal
        return self

    def __exit__(self, *exc: object) -> None:
        portal, self._portal = self._open, None
        try:
            portal.call(self._async.__aexit__)
        finally:
            portal.close(CLOSE_SECONDS)

    @property
    def _open(self) -> Portal:
        if self._portal is None:
            raise OutlastError(
                "this Client is not open. Use it in its block: `with Client(...) as client:`."
            )
        return self._portal

    submit = giving_runs(core.Client.submit)
    submit_many = giving_runs(core.Client.submit_many)
    schedule = blocking(core.Client.schedule)
    schedules = blocking(core.Client.schedules)
    pause_workflow = blocking(core.Client.pause_workflow)
    resume_workflow = blocking(core.Client.resume_workflow)
    paused_workflows = blocking(core.Client.paused_workflows)
    limiters = blocking(core.Client.limiters)
    pause_schedule = blocking(core.Client.pause_schedule)
    resume_schedule = blocking(core.Client.resume_schedule)
    trigger_schedule = blocking(core.Client.trigger_schedule)
    backfill_schedule = blocking(core.Client.backfill_schedule)
    delete_schedule = blocking(core.Client.delete_schedule)
    result = blocking(core.Client.result)
    runs = blocking(core.Client.runs)
    journal = blocking(core.Client.journal)
    send = blocking(core.Client.send)
    cancel = blocking(core.Client.cancel)
    retry = blocking(core.Client.retry)
    resume = blocking(core.Client.resume)
    decide = blocking(core.Client.decide)
    budgets = blocking(core.Client.budgets)
    raise_budget = blocking(core.Client.raise_budget)
    effects = blocking(core.Client.effects)
    prune = blocking(core.Client.prune)
    bulk = blocking(core.Client.bulk)
    queues = blocking(core.Client.queues)
    workers = blocking(core.Client.workers)
    drains = blocking(core.Client.drains)
    sessions = blocking(core.Client.sessions)

    @overload
    def get(self, workflow: Workflow[..., R], id: str) -> Run[R]: ...
    @overload
    def get(self, workflow: str, id: str) -> Run[Any]: ...
    def get(self, workflow: Workflow[..., Any] | str, id: str) -> Run[Any]:
        """Return the run with this id. The workflow gives its result a type."""
        portal = self._open
        return Run(portal, self._async.get(workflow, id))

    def watch(self, id: str, stream: str | None = None, *, after: str | None = None) -> Watch:
        """Return the events of a stream of a run, until the run ends. Iterate with `for`."""
        portal = self._open
        return Watch(portal, self._async.watch(id, stream, after=after))

    def queue(self, name: str) -> Queue:
        """Return the queue of plain work items with this name."""
        portal = self._open
        return Queue(portal, self._async.queue(name))

    def session(
        self,
        id: str,
        *,
        ttl: float | EllipsisType | None = ...,
        fields_max: int | None = None,
    ) -> Session:
        """Return a session. A read does not extend its expiry."""
        portal = self._open
        return Session(portal, self._async.session(id, ttl=ttl, fields_max=fields_max))

    def checkpoint(self, task_id: str, *, ttl: float | None = None) -> Checkpoint:
        """Return a checkpoint: the saved position of a script that has no workflow."""
        portal = self._open
        return Checkpoint(portal, self._async.checkpoint(task_id, ttl=ttl))


__all__ = ["Client", "Queue"]
