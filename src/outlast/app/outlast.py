"""`Outlast`: the library in a user's own program; and `run`, the whole thing in one call."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Self, TypeVar
from uuid import uuid4

from outlast.app.handle import Run, RunInfo, conclude
from outlast.app.house import House, check_same
from outlast.app.settings import Settings
from outlast.define.workflow import Call, Workflow
from outlast.errors import NotInRun, OutlastError, SettingsError, UnknownRun, WrongStatus
from outlast.replay.bodies import BODY
from outlast.replay.threads import THREAD
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.store.rows import Entry, RunQuery, RunRow
from outlast.store.verbs import UNKNOWN, Prune, Refused, Resume, Retry, Send, Submit
from outlast.values import plain
from outlast.values.names import check_id, check_name

R = TypeVar("R")


class Outlast:
    """Durable runs in your own program. An async context manager:

        async with Outlast(store="sqlite:///agents.db") as app:
            run = await app.start(report("tides"), id="report-1")
            print(await run.result())

    Settings are keywords here or OUTLAST_… in the environment. Leaving the block stops what executes here and gives the
    runs back; they go on where they are started again.
    """

    def __init__(self, store: str | Store | None = None, **settings: Any) -> None:
        address = store if isinstance(store, str) else None
        self.settings = Settings.load({**settings, "store": address})
        self._store = store if store is not None and not isinstance(store, str) else None
        self._house: House | None = None
        self._inline = False

    async def __aenter__(self) -> Self:
        if self._house is not None:
            raise OutlastError("this Outlast is open already; make another one.")
        store = self._store or store_at(self.settings.store, heartbeat=self.settings.heartbeat)
        house = House(store, self.settings, asyncio.get_running_loop(), inline=self._inline)
        await house.open()
        self._house = house
        return self

    async def __aexit__(self, *exc: object) -> None:
        house, self._house = self._open, None
        await house.close()

    @property
    def _open(self) -> House:
        if self._house is None:
            raise OutlastError("this Outlast is not open: use `async with Outlast(...) as app:`.")
        return self._house

    # -- starting

    async def start(self, call: Call[R], *, id: str | None = None) -> Run[R]:
        """Execute a run here, in the background. The id is its idempotency key: a finished run is not executed again, one
        under way is joined, one whose process died goes on; other arguments under the same id are a Conflict."""
        house, id = self._open, self._id(id)
        await house.start(call, id)
        return Run(house, id, call.workflow)

    async def submit(
        self,
        call: Call[R],
        *,
        id: str | None = None,
        queue: str = "default",
        priority: int = 0,
        delay: float = 0.0,
    ) -> Run[R]:
        """Queue a run, durable when this returns. The same id again is harmless, with other arguments a Conflict."""
        return (await self._submit([(call, self._id(id))], queue, priority, delay))[0]

    async def submit_many(
        self, calls: Iterable[Call[R]], *, queue: str = "default", priority: int = 0, delay: float = 0.0
    ) -> list[Run[R]]:
        """Queue several runs at once."""
        return await self._submit([(call, self._id(None)) for call in calls], queue, priority, delay)

    async def _submit(
        self, calls: list[tuple[Call[R], str]], queue: str, priority: int, delay: float
    ) -> list[Run[R]]:
        house = self._open
        check_name(queue, self.settings.name_length_max, "queue name")
        verbs: list[Submit] = [
            house.submission(call, id, queue=queue, priority=priority, delay=delay) for call, id in calls
        ]
        outcomes = await asyncio.gather(*[house.writer.ask(verb) for verb in verbs])
        for (call, _), outcome in zip(calls, outcomes, strict=True):
            if not outcome.new:
                check_same(outcome.row, call)
        return [Run(house, id, call.workflow) for call, id in calls]

    # -- finding

    def get(self, workflow: Workflow[..., R], id: str) -> Run[R]:
        """A run by its id; its result is typed by the workflow."""
        house = self._open
        house.know(workflow)
        return Run(house, self._id(id), workflow)

    async def result(self, id: str, timeout: float | None = None) -> Any:
        """Wait for a run's end: its result as plain JSON, or how it ended."""
        house = self._open
        await self._row(id)
        async with asyncio.timeout(timeout):
            end = await house.ended(id)
        return conclude(id, end, plain)

    async def runs(
        self,
        *,
        status: str | Iterable[str] = (),
        workflow: str | None = None,
        queue: str | None = None,
        parent: str | None = None,
        waiting_for: str | None = None,
        older_than: timedelta | float | None = None,
        newer_than: timedelta | float | None = None,
        limit: int = 100,
    ) -> list[RunInfo]:
        """Runs, newest first. Ages are seconds or timedeltas, since their creation."""
        house = self._open
        now = house.store.now()
        query = RunQuery(
            statuses=(status,) if isinstance(status, str) else tuple(status),
            workflow=workflow,
            queue=queue,
            parent=parent,
            waiting_for=waiting_for,
            created_before=None if older_than is None else now - _seconds(older_than),
            created_after=None if newer_than is None else now - _seconds(newer_than),
            limit=limit,
        )
        return [RunInfo.of(row) for row in await house.read(house.store.runs, query)]

    async def journal(self, id: str) -> list[Entry]:
        """Everything recorded of a run, in order."""
        house, row = self._open, await self._row(id)
        return await house.read(house._whole_journal, row.pk)

    # -- acting on runs

    async def send(self, id: str, name: str, value: Any = None, *, message_id: str | None = None) -> None:
        """Send a message, durable when this returns; a `receive(name)` of the run takes it, now or later.

        The same message_id again is harmless. UnknownRun, or WrongStatus once the run has ended.
        """
        check_name(name, self.settings.name_length_max, "message name")
        message = check_id(message_id or uuid4().hex, self.settings.id_length_max, "message id")
        self._id(id)
        text = encode_message(value)
        self._open.check_size(text, f"message {name!r}")
        self._done(id, await self._open.writer.ask(Send(id, name, message, text)), "sent to")

    async def cancel(self, id: str, why: str = "cancelled by its user") -> str:
        """Ask a run to end: it is told why, its `finally` blocks execute, no new step starts. Its status after."""
        self._id(id)
        why = why.encode(errors="backslashreplace").decode()[: self.settings.error_text_max]
        status: str = self._done(id, await self._open.cancel(id, why), "cancelled")
        return status

    async def retry(self, id: str) -> None:
        """Queue a failed, cancelled or dead run again, from the step that ended it."""
        self._id(id)
        self._done(id, await self._open.writer.ask(Retry(id, secrets.token_hex(8))), "retried")

    async def resume(self, id: str) -> None:
        """Queue a parked run again."""
        self._id(id)
        self._done(id, await self._open.writer.ask(Resume(id, secrets.token_hex(8))), "resumed")

    async def prune(self, older_than: timedelta | float, *, batch: int = 500) -> int:
        """Delete runs that ended longer ago than this, with their journals, in batches. How many were deleted."""
        house, deleted = self._open, 0
        if batch < 1:
            raise SettingsError(f"batch={batch} must be at least 1.")
        before = house.store.now() - _seconds(older_than)
        while True:
            count: int = await house.writer.ask(Prune(before, batch))
            deleted += count
            if count < batch:
                return deleted

    # -- helpers

    def _id(self, id: str | None) -> str:
        return uuid4().hex if id is None else check_id(id, self.settings.id_length_max, "run id")

    async def _row(self, id: str) -> RunRow:
        house = self._open
        row = await house.read(house.store.run, self._id(id))
        if row is None:
            raise UnknownRun(id)
        return row

    def _done(self, id: str, outcome: Any, verb: str) -> Any:
        if isinstance(outcome, Refused):
            if outcome.why == UNKNOWN:
                raise UnknownRun(id)
            raise WrongStatus(f"run {id!r} is {outcome.detail}: it cannot be {verb} now.")
        return outcome


def run(call: Call[R], *, id: str | None = None, store: str | None = None, **settings: Any) -> R:
    """Execute a workflow in this process and return its result. Kill it anywhere, start it again with the same id, and
    it goes on from its last recorded step."""
    if not isinstance(call, Call):
        raise TypeError(f"run() takes a call of a workflow, like run(report('tides')), not {call!r}.")
    if asyncio._get_running_loop() is not None or (THREAD.get() is not None and BODY.get() is None):
        raise NotInRun(
            "run() is for programs without an event loop of their own. In a coroutine: `async with Outlast() as app: "
            "await (await app.start(call)).result()`. In a workflow: `await call`, or "
            "`outlast.sync.run(call)` in a sync one."
        )

    async def main() -> R:
        async with Outlast(store, **settings) as app:
            return await (await app.start(call, id=id)).result()

    return asyncio.run(main())


def encode_message(value: Any) -> str:
    """A message's value: plain JSON, or what pydantic makes of its type."""
    from outlast.errors import Unrecordable

    try:
        return plain.encode(value)
    except Unrecordable:
        from outlast.values.codec import codec_for

        return codec_for(type(value)).encode(value)


def _seconds(age: timedelta | float) -> float:
    return age.total_seconds() if isinstance(age, timedelta) else float(age)


__all__ = ["Outlast", "Run", "RunInfo", "run"]
