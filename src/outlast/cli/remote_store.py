"""Read over the HTTP API what commands read from a store.

Only the reads and the two writes that commands make of a store itself are here. All other actions
go through `outlast.client.Client`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from outlast.cli.remote_loop import BackgroundLoop
from outlast.cli.remote_rows import drain_row, executing_row, schedule_row, stall_rows
from outlast.client import listing
from outlast.client.client import Client
from outlast.client.errors import ApiError
from outlast.client.internals import transport_of
from outlast.client.journal_rows import entry_row, execution_row, message_row
from outlast.client.rows import (
    Document,
    json_text,
    limiter_of,
    pause_of,
    queue_row,
    run_row,
    seconds_of,
    session_row,
    worker_row,
)
from outlast.client.run import run_path
from outlast.client.transport import Transport, segment
from outlast.engine.budget_store import QUESTIONS
from outlast.engine.executing_steps import EXECUTING
from outlast.engine.limiters import LimiterInfo
from outlast.engine.schedule_rows import ScheduleRow
from outlast.errors import UnknownRun
from outlast.store.commands import UNKNOWN, Prune, Refused, RequestDrain
from outlast.store.fleet import STALLS
from outlast.store.pauses import PausedWorkflow
from outlast.store.rows import (
    Claimable,
    DrainRow,
    Entry,
    ExecutionRow,
    Message,
    QueueRow,
    RunQuery,
    RunRow,
    WorkerRow,
)
from outlast.store.session_rows import SessionQuery, SessionRow

T = TypeVar("T")
AGE_SECONDS_MAX = 1e10
IDS_MAX = 1_000
"""How many runs are remembered. A command that watches reads them again and again."""


class RemoteStore:
    """The reads of a store, as requests to its HTTP API. Each one waits for its answer."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._loop = BackgroundLoop()
        self._now = 0.0
        self._read = 0
        """How many rows of runs were read. Each row gets the number as its pk."""
        self._ids: OrderedDict[int, str] = OrderedDict()
        """The ids of the runs that were read last, by pk."""
        self._timelines: dict[int, tuple[Document, list[Document]]] = {}
        self._queues: dict[str, Document] = {}

    def open(self) -> None:
        """Open the client. Nothing is sent yet."""
        self._loop.start()
        self._loop.call(self._client.__aenter__())

    def close(self) -> None:
        """Close the client."""
        self._loop.call(self._client.__aexit__())
        self._loop.stop()

    def _ask(self, request: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
        return self._loop.call(request(transport_of(self._client)))

    def _get(self, path: str, **parameters: Any) -> Any:
        return self._ask(lambda transport: transport.get(path, parameters))

    def now(self) -> float:
        """Return the store's time."""
        self._now = seconds_of(self._get("/v1/me")["now"]) or 0.0
        return self._now

    # -- runs

    def run(self, id: str) -> RunRow | None:
        """Return the row of a run, or None if there is none."""
        try:
            found = self._get(run_path(id), brief=True)
        except UnknownRun:
            return None
        return self._numbered(run_row(found["run"]))

    def runs(self, query: RunQuery) -> list[RunRow]:
        """Return the runs that match."""
        conditions = listing.run_conditions(
            {
                "status": query.statuses,
                "workflow": query.workflow,
                "queue": query.queue,
                "prefix": query.prefix,
                "parent": query.parent,
                "key": query.key,
                "waiting_for": query.waiting_for,
                "items": query.items,
                "undoing": query.undoing,
                "older_than": self._age(query.created_before),
                "newer_than": self._age(query.created_after),
            }
        )
        before = None if query.before_pk is None else self._ids[query.before_pk]
        found, _ = self._ask(
            lambda transport: listing.run_documents(transport, conditions, query.limit, before)
        )
        return [self._numbered(run_row(one)) for one in found]

    def _numbered(self, row: RunRow) -> RunRow:
        self._read += 1
        self._ids[self._read] = row.id
        if len(self._ids) > IDS_MAX:
            self._ids.popitem(last=False)
        return row._replace(pk=self._read)

    def _age(self, at: float | None) -> float | None:
        return None if at is None else min(AGE_SECONDS_MAX, max(0.0, self._now - at))

    def _timeline(self, pk: int) -> tuple[Document, list[Document]]:
        if pk not in self._timelines:
            self._timelines = {
                pk: self._ask(lambda transport: listing.timeline(transport, self._ids[pk]))
            }
        return self._timelines[pk]

    def journal(self, run: int, after: int = 0) -> list[Entry]:
        """Return all entries after a number."""
        return [entry_row(one) for one in self._timeline(run)[1] if one["seq"] > after]

    def history(self, run: int) -> list[Entry]:
        """Return the entries of a batch that are not of its items."""
        return self.journal(run)

    def done_count(self, run: int) -> int:
        """Return how many items of a batch are done."""
        count: int = self._timeline(run)[0]["items"]["done"]
        return count

    def executions(self, run: int) -> list[ExecutionRow]:
        """Return the executions of a run, oldest first."""
        return [execution_row(one) for one in self._timeline(run)[0]["executions"]]

    def messages(self, run: int) -> list[Message]:
        """Return the messages to a run."""
        return [message_row(one) for one in self._timeline(run)[0]["messages"]]

    # -- the fleet

    def workers(self) -> list[WorkerRow]:
        """Return the workers."""
        return [worker_row(one) for one in self._get("/v1/workers")["workers"]]

    def dead_workers(self) -> list[str]:
        """Return the ids of the workers that seem dead, or hold runs and are deregistered."""
        found = self._get("/v1/workers")
        dead = [one["id"] for one in found["workers"] if one["state"] == "dead"]
        return dead + list(found["deregistered"])

    def queues(self) -> list[QueueRow]:
        """Return the queues."""
        found = self._get("/v1/queues")["queues"]
        self._queues = {one["name"]: one for one in found}
        return [queue_row(one) for one in found]

    def peek(self, queues: Sequence[str], workflows: Sequence[str]) -> Claimable:  # noqa: ARG002
        """Return which workflows of a queue no live worker knows. `queues` has read it."""
        unknown = tuple(self._queues[queues[0]]["unknown_workflows"])
        return Claimable(False, False, None, False, unknown)

    def drains(self, limit: int) -> list[DrainRow]:
        """Return the latest drains."""
        return [drain_row(one) for one in self._get("/v1/drains", limit=limit)["drains"]]

    # -- sessions and schedules

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        """Return the sessions that match. What blocked workers is kept in sessions too."""
        if query.space == STALLS:
            return stall_rows(self._get("/v1/workers")["stalls"])
        found, _ = self._ask(
            lambda transport: listing.session_documents(
                transport, query.space, query.prefix, query.limit
            )
        )
        return [session_row(one) for one in found]

    def session(self, id: str, space: str, *, names: Sequence[str] = ()) -> SessionRow | None:
        """Return a session with its values, or None if there is none.

        Which steps of a run execute is kept in a session too, in a field with the run's pk.
        """
        if space == EXECUTING:
            return executing_row(id, names[0], self._timeline(int(names[0]))[0])
        if space == QUESTIONS:
            return self._questions(id)
        try:
            found = self._get(f"/v1/{space}s/{segment(id)}", last=0)["session"]
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        fields = {name: json_text(value) for name, value in found["values"].items()}
        return session_row(found)._replace(fields=fields)

    def _questions(self, id: str) -> SessionRow | None:
        """Return what a run asks about budgets, which is part of its timeline."""
        pk = next((pk for pk, run in reversed(self._ids.items()) if run == id), None)
        asked = {} if pk is None else self._timeline(pk)[0]["questions"]
        return SessionRow(id, 1, 0.0, None, asked) if asked else None

    def items(self, id: str, name: str, start: int, *, space: str) -> list[str]:
        """Return the last items of a list, from a negative number on."""
        path = f"/v1/{space}s/{segment(id)}/lists/{segment(name)}"
        return [json_text(one) for one in self._get(path, last=-start)["items"]]

    def schedules(self) -> tuple[list[ScheduleRow], list[str]]:
        """Return the schedules, and what is wrong with each damaged one."""
        found = self._get("/v1/schedules")
        return [schedule_row(one) for one in found["schedules"]], list(found["damaged"])

    def pauses(self) -> list[PausedWorkflow]:
        """Return the paused workflows."""
        return [pause_of(one) for one in self._get("/v1/paused-workflows")["workflows"]]

    def limiters(self) -> tuple[list[LimiterInfo], list[str]]:
        """Return the limiters, and the names of damaged ones."""
        found = self._get("/v1/limiters")
        return [limiter_of(one) for one in found["limiters"]], list(found["damaged"])

    # -- writes

    def commit(self, commands: Sequence[Any]) -> list[Any]:
        """Ask workers to drain, or prune. These are the writes without an app."""
        return [self._commit(command) for command in commands]

    def _commit(self, command: Any) -> Any:
        if isinstance(command, RequestDrain):
            return self._drain(command)
        assert isinstance(command, Prune), command
        if command.sessions:
            # The server deletes them with the runs.
            return 0
        age = max(0.0, self._now - command.before)
        return self._loop.call(self._client.prune(age, dead=command.dead))

    def _drain(self, command: RequestDrain) -> Any:
        path = f"/v1/workers/{segment(command.worker)}/drain"
        try:
            self._ask(lambda transport: transport.act("POST", path, {"why": command.why}))
        except ApiError as error:
            if error.status == 404:
                return Refused(UNKNOWN)
            raise
        return None
