"""Define what the followers of streams and of whole runs have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from outlast.engine.watching.events import EndEvent, WatchEvent
from outlast.errors import UnknownRun
from outlast.store.protocol import Store

Generation = tuple[int, str, int]
"""The run, the server and the start of a stream: what values have in common that can be shown one
after the other."""


class Cursor(Protocol):
    """What a viewer has seen."""

    @property
    def position(self) -> int: ...

    @property
    def has_seen(self) -> bool: ...

    def text(self, origin: str) -> str: ...


class Chunk(NamedTuple):
    """Values that follow one another, as they were read."""

    first: int
    values: list[Any]
    size: int
    """The characters of their JSON."""

    @property
    def stop(self) -> int:
        """Return the position after the last value."""
        return self.first + len(self.values)


class Reading(Protocol):
    """What one read of the store has found, as of one moment."""

    @property
    def end(self) -> EndEvent | None: ...

    @property
    def generation(self) -> Generation: ...


class Found(Enum):
    """What a viewer gets instead of events."""

    NOTHING = "it has seen everything so far"
    OLDER = "what follows is older than the window: it must be read from the store"


class Pages(Protocol):
    """The pages that viewers behind their window have read."""

    def find(self, origin: str, generation: Generation, position: int) -> Chunk | None: ...


C = TypeVar("C", bound=Cursor)
R = TypeVar("R", bound=Reading)


class Follower(ABC, Generic[C, R]):
    """The newest state of what viewers follow, as of the last read.

    It exists as long as a viewer refers to it.
    """

    def __init__(self, id: str, origin: str, *, pause: float, poll: float) -> None:
        self.id, self.origin = id, origin
        self.pause = pause
        """The least number of seconds between two reads."""
        self.poll = poll
        """The number of seconds after which the store is read without a notification."""
        self.read_at = 0.0
        """When the last read began, on the event loop's clock."""
        self.checks_run = True
        """Whether the next read must also look at the run, and not only at what follows."""
        self.checked = (0, 0.0)
        """The number of changes in the store, and the time, when the run was looked at."""
        self.waiting = 0
        """How many viewers wait. Without any, nothing is read."""
        self.opening = 0
        """How many of the viewers wait for a round of reads, even if it finds nothing new."""
        self.round = 0
        """The number of the last round of reads that this follower was part of."""
        self.failure: BaseException | None = None
        """Why it no longer follows anything."""
        self._changed = asyncio.Event()
        """Set and cleared at once. It wakes the viewers."""
        self._reading: R | None = None

    # -- reading

    @abstractmethod
    def read(self, store: Store) -> R | None:
        """Read what follows. Called in a thread, while nothing changes this.

        Return None if the run does not exist.
        """

    @abstractmethod
    def read_page(self, store: Store, cursor: C) -> tuple[Generation, list[Chunk]] | None:
        """Read what follows a cursor that is older than the window. Called in a thread."""

    @abstractmethod
    def take(self, reading: R, before: R | None) -> bool:
        """Take over what was read. Return whether it is news to viewers."""

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """Return whether the store has more than the last page."""

    def apply(self, reading: R | None, round: int) -> None:
        """Take over what was read, and wake the viewers."""
        self.round = round
        if reading is None:
            self.fail(UnknownRun(self.id))
            return
        before, self._reading = self._reading, reading
        if self.take(reading, before) or self.opening:
            self.wake()

    def fail(self, error: BaseException) -> None:
        """Raise this error in every viewer."""
        self.failure = error
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    # -- for viewers

    async def wait(self, *, opening: bool) -> None:
        """Wait until there is something new, or with `opening` until the store was read."""
        self.waiting += 1
        self.opening += opening
        try:
            await self._changed.wait()
        finally:
            self.waiting -= 1
            self.opening -= opening

    @property
    def known(self) -> R:
        """Return what was read last."""
        assert self._reading is not None
        return self._reading

    @property
    @abstractmethod
    def beginning(self) -> C:
        """Return the cursor of a viewer that has seen nothing."""

    @abstractmethod
    def holds(self, cursor: C) -> bool:
        """Return whether everything that a viewer with this cursor has seen still holds.

        The last read must have begun after the viewer got its cursor.
        """

    @abstractmethod
    def after(self, cursor: C, limit: int, pages: Pages) -> tuple[Sequence[WatchEvent], C] | Found:
        """Return what follows a cursor that holds, and the cursor after it.

        There are at most `limit` events.
        """

    @abstractmethod
    def is_at_end(self, cursor: C) -> bool:
        """Return whether a viewer with this cursor has seen everything, also the end."""
