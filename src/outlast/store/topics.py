"""Say which listeners a commit concerns.

Publications have a topic of their own. A stream publishes ten times a second, and the processes
that wait for work must not look for some each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import NamedTuple

from outlast.store.commands import LOUD, LOUD_AT_HOME, Publish


class Topic(Enum):
    CHANGES = "!"
    """Anything that other processes may wait for, except publications."""
    STREAMS = "s"
    """Publications."""


class News(NamedTuple):
    """The topics that a commit concerns."""

    here: tuple[Topic, ...]
    """In the process that commits. It already knows what it settles itself."""
    elsewhere: tuple[Topic, ...]


def news_of(kinds: AbstractSet[type], *, notifies: bool) -> News:
    """Return the topics of a commit with commands of these types.

    `notifies` means that the commit itself found something that others wait for.
    """
    streams = (Topic.STREAMS,) if Publish in kinds else ()
    here = (Topic.CHANGES,) if notifies or not kinds.isdisjoint(LOUD_AT_HOME) else ()
    elsewhere = (Topic.CHANGES,) if notifies or not kinds.isdisjoint(LOUD) else ()
    return News((*here, *streams), (*elsewhere, *streams))


class Listeners:
    """The callbacks of one process, by topic."""

    def __init__(self) -> None:
        self._callbacks: dict[Topic, tuple[Callable[[], None], ...]] = {}

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Return the topics that have a listener."""
        return tuple(self._callbacks)

    def of(self, topics: Iterable[Topic]) -> list[Callable[[], None]]:
        """Return the callbacks for these topics."""
        return [callback for topic in topics for callback in self._callbacks.get(topic, ())]

    def add(self, topic: Topic, callback: Callable[[], None]) -> None:
        self._callbacks[topic] = (*self._callbacks.get(topic, ()), callback)

    def call(self, topics: Iterable[Topic]) -> None:
        for callback in self.of(topics):
            callback()

    def clear(self) -> None:
        self._callbacks = {}
