"""Define `Watch`: what a viewer of a run holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from outlast.codec.identifiers import check_id, check_name
from outlast.engine.watching.cursor import RunCursor, StreamCursor, origin_of
from outlast.engine.watching.events import DataEvent, EndEvent, ResetEvent, WatchEvent
from outlast.engine.watching.follower import Found
from outlast.engine.watching.run_follower import RunFollower
from outlast.engine.watching.stream_follower import StreamFollower
from outlast.errors import Draining, StoreUnavailable

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.watching.followers import AnyFollower, Followers

__all__ = ["DataEvent", "EndEvent", "ResetEvent", "Watch", "WatchEvent"]

EVENTS_MAX = 256
"""How many events are returned at once, at most."""


class Watch:
    """The events of a stream or of a run. Iterate over it with `async for`.

    It holds a cursor and nothing else, so a viewer may be as slow as it likes. Read it in one task
    at a time.
    """

    def __init__(
        self, followers: Followers, id: str, stream: str | None, after: str | None
    ) -> None:
        self.cursor = after
        """The cursor of the last event, or the one that the watch began with."""
        self.ended = False
        """Whether the run has ended and all events were returned, or the watch was closed."""
        self._followers = followers
        self._id, self._stream = id, stream
        self._origin = origin_of(id, stream)
        form = RunCursor if stream is None else StreamCursor
        self._place: Any = form() if after is None else form.parse(after, self._origin)
        self._follower: AnyFollower | None = None
        self._round = 0
        """The watch needs a round of reads after this one."""
        self._buffer: deque[WatchEvent] = deque()

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the watch. It returns no more events."""
        self._close()

    def _close(self) -> None:
        self.ended, self._follower = True, None
        self._buffer.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._buffer:
            self._buffer.extend(await self._next(None))
        if not self._buffer:
            raise StopAsyncIteration
        return self._handed_out(self._buffer.popleft())

    async def next_events(self, timeout: float | None = None) -> list[WatchEvent]:
        """Wait for at least one event, and return all that are there, up to 256.

        Return an empty list after `timeout` seconds without any, and once the watch has `ended`.
        """
        events = [*self._buffer] or [*await self._next(timeout)]
        self._buffer.clear()
        if events:
            self._handed_out(events[-1])
        return events

    @property
    def is_final(self) -> bool:
        """Return whether the viewer had seen the end of the run before, and nothing has changed.

        This is known once the watch is open. The end is returned again.
        """
        follower = self._follower
        return (
            follower is not None
            and follower.round > self._round
            and follower.is_at_end(self._place)
        )

    def _handed_out(self, event: WatchEvent) -> WatchEvent:
        self.cursor = event.cursor
        self.ended = isinstance(event, EndEvent)
        return event

    async def _opened(self) -> AnyFollower:
        """Return the follower, after a read that is new enough for this watch."""
        if self._follower is None:
            self._check_open()
            self._round = self._followers.rounds_begun
            self._follower = self._followers.follow(self._origin, self._new_follower)
        follower = self._follower
        self._check(follower)
        while follower.round <= self._round:
            await self._followers.wait(follower, opening=True)
            self._check(follower)
        return follower

    def _new_follower(self) -> AnyFollower:
        poll = self._followers.poll
        if self._stream is None:
            return RunFollower(self._id, self._place, poll=poll)
        return StreamFollower(self._id, self._stream, self._place, poll=poll)

    async def _next(self, timeout: float | None) -> Sequence[WatchEvent]:
        if self.ended:
            return ()
        try:
            async with asyncio.timeout(timeout):
                return await self._wait()
        except TimeoutError:
            return ()

    async def _wait(self) -> Sequence[WatchEvent]:
        while True:
            follower = await self._opened()
            if not follower.holds(self._place):
                before, self._place = self._place, follower.beginning
                if before.has_seen:
                    return (ResetEvent(self._place.text(follower.origin)),)
            found = follower.after(self._place, EVENTS_MAX, self._followers.pages)
            if isinstance(found, tuple):
                events, self._place = found
                return events
            if found is Found.OLDER:
                if not await self._followers.read_page(follower, self._place):
                    self._round = self._followers.rounds_begun
            else:
                await self._followers.wait(follower)

    def _check(self, follower: AnyFollower) -> None:
        self._check_open()
        if follower.failure is not None:
            raise follower.failure.with_traceback(None)

    def _check_open(self) -> None:
        shutdown = self._followers.shutdown
        if shutdown.signalled and shutdown.announced.done():
            draining = Draining(
                f"this process is shutting down. Watch run {self._id!r} from another process, "
                "after the cursor of this error."
            )
            draining.cursor = self.cursor
            raise draining
        if shutdown.closing:
            raise StoreUnavailable(
                f"Outlast was closed while run {self._id!r} was watched. Watch it again after the "
                "cursor of the last event."
            )


def watch(engine: Engine, id: str, stream: str | None, after: str | None) -> Watch:
    """Return a watch of a stream or a run. Raise BadName, LimitExceeded or BadCursor."""
    check_id(id, engine.settings.id_length_max, "run id")
    if stream is not None:
        check_name(stream, engine.settings.name_length_max, "stream")
    return Watch(engine.followers, id, stream, after)
