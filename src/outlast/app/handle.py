"""`Run`: a run as its starter sees it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from outlast.app.house import House
from outlast.define.workflow import Workflow
from outlast.errors import RunCancelled, RunDead, RunFailed, RunParked, StepFailed, UnknownRun
from outlast.replay.ending import End
from outlast.store.rows import RunRow
from outlast.values.codec import PLAIN
from outlast.values.exceptions import decode_error, describe_error

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run, as it stands in the store."""

    id: str
    workflow: str
    status: str
    queue: str
    priority: int
    created: datetime
    started: datetime | None
    ended: datetime | None
    due: datetime | None
    worker: str | None
    fence: int
    deaths: int
    interruptions: int
    parent: str | None
    waiting_for: tuple[str, ...]
    cancelling: str | None
    reason: str | None
    error: str | None

    @classmethod
    def of(cls, row: RunRow) -> RunInfo:
        return cls(
            id=row.id,
            workflow=row.workflow,
            status=row.status,
            queue=row.queue,
            priority=row.priority,
            created=_time(row.created) or datetime.now(UTC),
            started=_time(row.started),
            ended=_time(row.ended),
            due=_time(row.due) if row.status in ("queued", "waiting") else None,
            worker=row.worker,
            fence=abs(row.fence),
            deaths=row.deaths,
            interruptions=row.interruptions,
            parent=row.parent,
            waiting_for=tuple(name for name in row.waits.split("\n") if name),
            cancelling=row.cancel if row.ended is None else None,
            reason=row.reason,
            error=describe_error(row.error) if row.error else None,
        )


class Run(Generic[R]):
    """A run, wherever it executes. `await run.result()` is its workflow's result, or raises how it ended."""

    def __init__(self, house: House, id: str, workflow: Workflow[..., R] | None) -> None:
        self._house, self.id, self._workflow = house, id, workflow

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the end. A failure is raised as the workflow's own exception where that is safe, else as RunFailed;
        RunCancelled, RunTimeout, RunParked and RunDead say how else it ended. TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            end = await self._house.ended(self.id)
        codec = self._workflow.signature.returns() if self._workflow is not None else PLAIN
        result: R = conclude(self.id, end, codec)
        return result

    async def info(self) -> RunInfo:
        """How it stands now."""
        row = await self._house.read(self._house.store.run, self.id)
        if row is None:
            raise UnknownRun(self.id)
        return RunInfo.of(row)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"


def conclude(id: str, end: End, codec: Any) -> Any:
    """The result of a run that ended, or the exception that says how it did."""
    if end.status == "done":
        return codec.decode(end.value) if end.value is not None else None
    if end.status == "failed":
        error = decode_error(end.error) if end.error else RunFailed(id)
        if isinstance(error, StepFailed):
            raise RunFailed(id, str(error), error.traceback_text) from error.__cause__
        if isinstance(error, asyncio.CancelledError):  # the workflow's own: its starter was not cancelled
            raise RunFailed(id, "its workflow raised CancelledError, though nobody had cancelled it")
        error.add_note(
            f"This is how run {id!r} ended, from its journal. Once the cause is mended: outlast retry {id}"
        )
        raise error
    kinds = {"cancelled": RunCancelled, "parked": RunParked, "dead": RunDead}
    raise kinds[end.status](id, end.reason or "")


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
