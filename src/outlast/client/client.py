"""Define `Client`, the counterpart of `Outlast` for programs that use the store over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from outlast.api.run import conclude
from outlast.api.run_filters import RunFilters
from outlast.api.schedule import Schedule, ScheduleInfo, ScheduleOptions
from outlast.api.session_info import SessionInfo, SessionOrder
from outlast.api.workflow import Call, Workflow
from outlast.client import actions, budgets, listing, rows, schedules
from outlast.client.calls import NamedCall, codec_of
from outlast.client.queue import Queue
from outlast.client.run import Run, run_path, until_ended
from outlast.client.session import Checkpoint, Session
from outlast.client.settings import server_access
from outlast.client.transport import Transport
from outlast.client.watch import Watch
from outlast.codec import plain_json
from outlast.codec.identifiers import check_queue_name
from outlast.codec.signature import NOT_GIVEN
from outlast.engine.budgets import BudgetInfo
from outlast.engine.bulk import BulkReport
from outlast.engine.inspection import EffectInfo, QueueInfo, RunInfo, WorkerInfo
from outlast.engine.limiters import LimiterInfo
from outlast.engine.submission import OnConflict
from outlast.engine.submission_windows import RepeatPolicy, policy_of
from outlast.errors import OutlastError, SettingsError
from outlast.shutdown.report import DrainReport
from outlast.store.commands import SESSION
from outlast.store.pauses import PausedWorkflow
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from decimal import Decimal

    import httpx

R = TypeVar("R")
DIRECT = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""Hosts that are reached without the proxies of the environment."""
NAME_LENGTH_MAX = 10_000


class Client:
    """Submit, follow and control runs over the HTTP API. Use it as an async context manager:

        async with Client("https://agents.example.com", token="…") as client:
            run = await client.submit(report("tides"), id="report-1")
            print(await run.result())

    The methods are those of `Outlast` that need no lease, with the same arguments and results.
    `call("report", "tides")` stands for a workflow whose code this program does not have. The
    server records the token's name as who did something.

    `url` and `token` default to OUTLAST_SERVER and OUTLAST_TOKEN. A request without an answer is
    repeated for `patience` seconds, and no action is done twice. Each attempt may take `timeout`
    seconds. The pauses between them grow from `backoff` to `backoff_max` seconds. `transport` is
    for httpx, such as one with a client certificate.
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
        self._access = server_access(
            url,
            token,
            timeout=timeout,
            patience=patience,
            backoff=backoff,
            backoff_max=backoff_max,
        )
        self._http_transport = transport
        self._http: httpx.AsyncClient | None = None
        self._transport: Transport | None = None

    async def __aenter__(self) -> Self:
        if self._http is not None:
            raise OutlastError("this Client is already open. Create another one.")
        self._http = self._new_http_client()
        await self._http.__aenter__()
        self._transport = Transport(self._http, self._access.policy)
        return self

    async def __aexit__(self, *exc: object) -> None:
        http, self._http, self._transport = self._http, None, None
        if http is not None:
            await http.aclose()

    def _new_http_client(self) -> httpx.AsyncClient:
        try:
            import httpx
        except ImportError as error:
            raise SettingsError(
                "Client needs httpx. Install it with: pip install 'outlast[client]'"
            ) from error
        token = self._access.token
        if not token.isascii():
            raise SettingsError(
                "the token contains a character that is not ASCII. Check OUTLAST_TOKEN, or the "
                "`token` of Client(...)."
            )
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(
            base_url=self._access.url,
            headers=headers,
            transport=self._http_transport,
            mounts=dict.fromkeys(DIRECT),
        )

    @property
    def _open(self) -> Transport:
        if self._transport is None:
            raise OutlastError(
                "this Client is not open. Use it in its block: `async with Client(...) as client:`."
            )
        return self._transport

    # -- starting

    async def submit(
        self,
        call: Call[R] | NamedCall[R],
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
    ) -> Run[R]:
        """Queue a run for the workers. It is durable when this returns.

        Submitting the same id again returns the existing run. Other arguments raise Conflict unless
        `on_conflict` is "join". Higher priorities go first. Workers do not claim the run before
        `delay` seconds have passed. Raise Backpressure if the queue is full and has no room within
        `wait` seconds (`math.inf`: wait without limit). Runs of a queue with different keys take
        turns, and the limits per key of `Queue.limit` apply. For `debounce` and `window` see
        `Outlast.submit`.
        """
        windowed: dict[str, Any] = {
            "debounce": debounce,
            "debounce_max": debounce_max,
            "window": window,
            "on_repeat": on_repeat,
        }
        if policy_of(**windowed, id=id, key=key, delay=delay, on_conflict=on_conflict) is not None:
            options = {"queue": queue, "priority": priority, "delay": delay, **windowed}
            return await actions.submit_in_window(
                self._open, call, id=id, key=key, wait=wait, **options
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
        )
        return runs[0]

    async def submit_many(
        self,
        calls: Iterable[Call[R] | NamedCall[R]],
        *,
        ids: Iterable[str] | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float = 0.0,
        wait: float = 0.0,
        on_conflict: OnConflict = "raise",
        keys: Iterable[str | None] | None = None,
    ) -> list[Run[R]]:
        """Queue several runs in one commit, all or none. The options are those of `submit`.

        `keys` has the key of each run, or None for a run without one.
        """
        return await actions.submit(
            self._open,
            list(calls),
            ids,
            queue=queue,
            priority=priority,
            delay=delay,
            wait=wait,
            on_conflict=on_conflict,
            keys=keys,
        )

    # -- schedules

    async def schedule(
        self,
        name: str,
        call: Call[Any] | NamedCall[Any],
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Run a call at the times of `cron`, or every `every` seconds.

        The rules and the options are those of `Outlast.schedule`.
        """
        return await schedules.set_schedule(self._open, name, call, Schedule(**options))

    async def pause_workflow(self, workflow: Workflow[..., Any] | str) -> None:
        """Stop claiming runs of a workflow, in all processes. Runs already executing continue.

        Workers notice it within a poll. Runs can still be submitted, and wait.
        """
        await actions.set_workflow_paused(self._open, workflow, paused=True)

    async def resume_workflow(self, workflow: Workflow[..., Any] | str) -> None:
        """Claim runs of a workflow again."""
        await actions.set_workflow_paused(self._open, workflow, paused=False)

    async def paused_workflows(self) -> list[PausedWorkflow]:
        """Return the paused workflows, ordered by name."""
        return await actions.paused_workflows(self._open)

    async def limiters(self) -> list[LimiterInfo]:
        """Return all limiters that were used lately, ordered by name."""
        return await listing.limiters(self._open)

    async def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules, ordered by name."""
        return await schedules.list_schedules(self._open)

    async def pause_schedule(self, name: str) -> None:
        """Pause a schedule. Times that pass until it is resumed do not fire later."""
        await schedules.act(self._open, name, "pause")

    async def resume_schedule(self, name: str) -> None:
        """Resume a paused schedule from now on."""
        await schedules.act(self._open, name, "resume")

    async def trigger_schedule(self, name: str) -> str:
        """Submit a run of a schedule now, whatever its times, and return the run's id."""
        return await schedules.trigger(self._open, name)

    async def backfill_schedule(self, name: str, start: datetime, end: datetime) -> list[str]:
        """Submit the runs of all times of a schedule from `start` until before `end`.

        Return their ids. Runs that exist already stay as they are.
        """
        return await schedules.backfill(self._open, name, start, end)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its runs stay."""
        await schedules.delete(self._open, name)

    # -- finding

    @overload
    def get(self, workflow: Workflow[..., R], id: str) -> Run[R]: ...
    @overload
    def get(self, workflow: str, id: str) -> Run[Any]: ...
    def get(self, workflow: Workflow[..., Any] | str, id: str) -> Run[Any]:
        """Return the run with this id. The workflow gives its result a type."""
        run_path(id)
        return Run(self._open, id, codec_of(workflow))

    async def result(self, id: str, timeout: float | None = None) -> Any:
        """Wait for a run to end and return its result as plain JSON.

        Raise a RunError or the workflow's exception if the run has no result, UnknownRun if there
        is no such run, and TimeoutError after `timeout` seconds.
        """
        return conclude(id, await until_ended(self._open, id, timeout), plain_json)

    async def runs(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> list[RunInfo]:
        """Return runs, newest first. The filters are those of `Outlast.runs`."""
        conditions = listing.run_conditions(filters)
        found, _ = await listing.run_documents(self._open, conditions, limit, before)
        return [RunInfo.of(rows.run_row(one)) for one in found]

    def watch(self, id: str, stream: str | None = None, *, after: str | None = None) -> Watch:
        """Return the events of a stream of a run, until the run ends.

            async for event in client.watch("report-1", "answer"):
                match event:
                    case DataEvent(value=token): show(token)
                    case ResetEvent(): clear()

        A connection that breaks is opened again, and the watch continues after its last event. Pass
        the `cursor` of an event as `after` to receive what follows it, from any program. Without a
        stream, the values are documents of the run itself.
        """
        return Watch(self._open, id, stream, after)

    async def journal(self, id: str) -> list[Entry]:
        """Return every journal entry of a run, in order."""
        return await listing.journal(self._open, id)

    # -- acting on runs

    async def send(
        self, id: str, name: str, value: Any = None, *, message_id: str | None = None
    ) -> None:
        """Send a message to a run. It is durable when this returns.

        A `receive(name)` of the run takes it, now or later. Sending the same message_id again is
        harmless. Raise UnknownRun, WrongStatus if the run has ended or the id is a queue item, or
        LimitExceeded.
        """
        await actions.send(self._open, id, name, value, message_id)

    async def cancel(self, id: str, why: str = "cancelled by its user") -> str:
        """Ask a run to end and return its status afterwards.

        The run receives the reason, its `finally` blocks execute, and no new step starts.
        """
        found = await self._open.act("POST", run_path(id, "cancel"), {"why": why})
        status: str = found["run"]["status"]
        return status

    async def retry(self, id: str, *, token: str | None = None) -> None:
        """Queue a failed, cancelled or dead run again, from the step that ended it.

        A repeat with the same `token` does nothing, even if the run has ended again.
        """
        await self._open.act("POST", run_path(id, "retry"), key=actions.key_of(token))

    async def resume(self, id: str, *, token: str | None = None) -> None:
        """Queue a parked run again.

        A repeat with the same `token` does nothing, even if the run was parked again.
        """
        await self._open.act("POST", run_path(id, "resume"), key=actions.key_of(token))

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
    ) -> None:
        """Decide what a parked run waits for, so that it continues.

        The arguments are those of `Outlast.decide`.
        """
        await actions.decide(
            self._open,
            id,
            effect,
            token,
            happened=happened,
            did_not=did_not,
            compensate=compensate,
            result=result,
            intent=intent,
            limit=limit,
        )

    async def budgets(
        self, *, prefix: str = "", after: str | None = None, limit: int = 100
    ) -> list[BudgetInfo]:
        """Return budgets that were used lately, ordered by id. See `Outlast.budgets`."""
        return await budgets.list_budgets(self._open, prefix, after, limit)

    async def raise_budget(self, id: str, limits: Mapping[str, float | Decimal]) -> BudgetInfo:
        """Set limits of a budget, and resume the runs that wait for it. See `Outlast`."""
        return await budgets.raise_budget(self._open, id, limits)

    async def effects(self, id: str) -> list[EffectInfo]:
        """Return the effects that a run performed or intended to perform, oldest first."""
        found = await self._open.get(run_path(id, "effects"))
        return [rows.effect_info(one) for one in found["effects"]]

    async def prune(self, older_than: timedelta | float, *, dead: bool = False) -> int:
        """Delete runs that ended longer ago than `older_than`, with their journals.

        Return how many runs were deleted. The rules are those of `Outlast.prune`.
        """
        return await actions.prune(self._open, older_than, dead=dead)

    async def bulk(
        self,
        action: Literal["cancel", "retry", "resume", "prune"],
        *,
        limit: int | None = None,
        why: str = "cancelled with others",
        dry_run: bool = False,
        token: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> BulkReport:
        """Cancel, retry, resume or prune all runs that match, newest first, in batches.

        The rules are those of `Outlast.bulk`. With a `limit`, a request is not repeated once it may
        have been done, because a repeat would act on further runs.
        """
        conditions = listing.run_conditions(filters)
        return await actions.bulk(
            self._open, action, conditions, limit=limit, why=why, dry_run=dry_run, token=token
        )

    # -- queues and workers

    def queue(self, name: str) -> Queue:
        """Return the queue of plain work items with this name."""
        return Queue(self._open, check_queue_name(name, NAME_LENGTH_MAX))

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its contents and limits."""
        found = await self._open.get("/v1/queues")
        return [QueueInfo.of(rows.queue_row(one)) for one in found["queues"]]

    async def workers(self) -> list[WorkerInfo]:
        """Return every process that has the store open for work."""
        found = await self._open.get("/v1/workers")
        return [
            WorkerInfo.of(rows.worker_row(one), seems_dead=one["state"] == "dead")
            for one in found["workers"]
        ]

    async def drains(self, *, limit: int = 20) -> list[DrainReport]:
        """Return the latest drains of all workers, newest first."""
        found = await self._open.get("/v1/drains", {"limit": limit})
        return [rows.drain_report(one) for one in found["drains"]]

    # -- sessions

    def session(
        self,
        id: str,
        *,
        ttl: float | EllipsisType | None = ...,
        fields_max: int | None = None,
    ) -> Session:
        """Return a session: state that outlives its process, such as a user's or a conversation's.

        The rules are those of `Outlast.session`, except that a read does not extend its expiry.
        """
        return Session(self._open, id, ttl, fields_max=fields_max)

    async def sessions(
        self,
        prefix: str = "",
        *,
        limit: int = 100,
        order: SessionOrder = "updated",
        after: str | None = None,
    ) -> list[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, most recently changed first.

        The rules are those of `Outlast.sessions`.
        """
        if after is not None and order != "id":
            raise ValueError("after= continues a list in the order of ids. Pass order='id' too.")
        found, _ = await listing.session_documents(
            self._open, SESSION, prefix, limit, order=order, after=after
        )
        return [SessionInfo.of(rows.session_row(one)) for one in found]

    def checkpoint(self, task_id: str, *, ttl: float | None = None) -> Checkpoint:
        """Return a checkpoint: the saved position of a script that has no workflow.

        It stays until it is cleared, or until it is not changed for `ttl` seconds.
        """
        return Checkpoint(self._open, task_id, ttl)
