"""Provide `Watch` for sync programs."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Protocol, Self

from outlast.engine.watching.events import WatchEvent
from outlast.sync.portal import Portal


class AwaitedWatch(Protocol):
    """The events of a stream or of a run, for an async program."""

    cursor: str | None
    ended: bool

    @property
    def is_final(self) -> bool: ...

    async def __aenter__(self) -> Any: ...

    async def next_events(self, timeout: float | None = None) -> list[WatchEvent]:
        """Wait for at least one event, and return all that are there."""
        ...

    def _close(self) -> None: ...


class Watch:
    """The events of a stream or of a run. Iterate over it with `for`.

    It holds a cursor and nothing else, so a viewer may be as slow as it likes. Read it in one
    thread at a time.
    """

    def __init__(self, portal: Portal, watch: AwaitedWatch) -> None:
        self._portal, self._watch = portal, watch
        self._buffer: deque[WatchEvent] = deque()
        self._cursor = watch.cursor

    @property
    def cursor(self) -> str | None:
        """Return the cursor of the last event, or the one that the watch began with."""
        return self._cursor

    @property
    def ended(self) -> bool:
        """Return whether all events were handed out, or the watch was closed."""
        return self._watch.ended and not self._buffer

    @property
    def is_final(self) -> bool:
        """Return whether the viewer had seen the end of the run before, and nothing has changed.

        This is known once the watch is open. The end is returned again.
        """
        return self._watch.is_final

    def __enter__(self) -> Self:
        self._portal.call(self._watch.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the watch. It returns no more events."""
        self._buffer.clear()
        self._watch._close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchEvent:
        if not self._buffer:
            self._buffer.extend(self._portal.call(self._watch.next_events))
        if not self._buffer:
            raise StopIteration
        event = self._buffer.popleft()
        self._cursor = event.cursor
        return event

    def next_events(self, timeout: float | None = None) -> list[WatchEvent]:
        """Wait for at least one event, and return all that are there, up to 256.

        Return an empty list after `timeout` seconds without any, and once the watch has `ended`.
        """
        events = [*self._buffer] or self._portal.call(self._watch.next_events, timeout)
        self._buffer.clear()
        if events:
            self._cursor = events[-1].cursor
        return events
