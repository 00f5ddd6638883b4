"""Read the events of a watch ahead of its viewer, and reconnect as often as needed."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from outlast.client.errors import ServerUnavailable
from outlast.client.problems import error_of
from outlast.client.retry_policy import REPEATED
from outlast.client.run import run_path
from outlast.client.server_events import ServerEvent, server_events
from outlast.client.transport import Transport, Unanswered
from outlast.codec.text import one_line
from outlast.engine.watching.events import DataEvent, EndEvent, ResetEvent, WatchEvent
from outlast.errors import OutlastError

if TYPE_CHECKING:
    import httpx

SILENCE_SECONDS = 30.0
"""How much longer than usual the server may be silent. It sends something every 15 s."""


class WatchReader:
    """Put the events after a cursor into a queue, up to its end. A failure ends it with None."""

    def __init__(
        self,
        transport: Transport,
        id: str,
        path: str,
        cursor: str | None,
        found: asyncio.Queue[WatchEvent | None],
    ) -> None:
        self.found = found
        self.opened = asyncio.Event()
        """The server has answered for the first time, or there is a failure."""
        self.failure: Exception | None = None
        self.is_final = False
        """Whether the server answered that the viewer has seen the end."""
        self._transport = transport
        self._id = id
        self._path = path
        self._cursor = cursor
        self._has_received = False
        """Whether the server has sent something since the last failure."""
        self._retry = 0.0
        """How many seconds the server asks the client to wait before it reconnects."""

    async def read(self) -> None:
        """Read until the end of the run."""
        try:
            await self._read_all()
        except Exception as failure:
            # The viewer raises it.
            self.failure = failure
            await self.found.put(None)
        finally:
            self.opened.set()

    async def _read_all(self) -> None:
        policy, loop = self._transport.policy, asyncio.get_running_loop()
        attempts, until = 0, loop.time() + policy.patience
        while True:
            try:
                if await self._read_once():
                    return
                error: OutlastError = ServerUnavailable(f"the stream of run {self._id!r} was cut.")
                pause = self._retry
            except Unanswered as unanswered:
                error, pause = unanswered.error, policy.pause(1, unanswered.headers)
            if self._has_received:
                self._has_received = False
                attempts, until = 0, loop.time() + policy.patience
            attempts += 1
            pause = max(pause, policy.pause(attempts))
            if loop.time() + pause > until:
                raise error
            await self._transport.pause(pause)

    async def _read_once(self) -> bool:
        """Read one connection, and return whether the run's end was reached."""
        import httpx

        after = {"after": self._cursor}
        response = await self._transport.open(self._path, after, wait=SILENCE_SECONDS)
        async with aclosing(response):
            self.is_final = response.status_code == 204
            self.opened.set()
            if self.is_final:
                await self.found.put(await self._end())
                return True
            try:
                return await self._read_events(response)
            except httpx.HTTPError as error:
                reason = one_line(str(error)) or type(error).__name__
                raise Unanswered(
                    ServerUnavailable(f"the stream of run {self._id!r} was cut: {reason}."),
                    may_be_done=False,
                ) from error

    async def _read_events(self, response: httpx.Response) -> bool:
        async for event in server_events(response.aiter_lines()):
            self._has_received = True
            if event.retry is not None:
                self._retry = event.retry
            if event.kind == "problem":
                _raise_problem(event)
            elif event.kind:
                found = _event_from(event)
                await self.found.put(found)
                self._cursor = found.cursor
                if isinstance(found, EndEvent):
                    return True
        return False

    async def _end(self) -> EndEvent:
        """Return the end of the run, which the viewer has seen before."""
        ended = await self._transport.get(run_path(self._id, "result"))
        return EndEvent(
            self._cursor or "", ended["status"], ended["result"], ended["error"], ended["reason"]
        )


def _event_from(event: ServerEvent) -> WatchEvent:
    document: Any = json.loads(event.data)
    cursor = document["cursor"]
    if document["kind"] == "data":
        return DataEvent(cursor, document["value"])
    if document["kind"] == "reset":
        return ResetEvent(cursor)
    return EndEvent(
        cursor, document["status"], document["result"], document["error"], document["reason"]
    )


def _raise_problem(event: ServerEvent) -> None:
    """Raise the problem as an exception, or Unanswered if another attempt may help."""
    document: Any = json.loads(event.data)
    status = document.get("status", 500)
    error = error_of(status, document)
    if status in REPEATED:
        raise Unanswered(error, may_be_done=False)
    raise error
