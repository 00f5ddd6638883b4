"""Receive messages: from the run's mailbox in the store into its boxes on the run loop.

A message enters the journal when a receive waits for its name, and enters its box when that entry
is delivered. A receive then takes it like from any asyncio.Queue. A cancelled receive leaves it for
the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from outlast.codec.codecs import Codec
from outlast.store.rows import Message

Record = Callable[[str, str], object]
"""Records that a message is taken, given its name and its number as text."""


class Mailbox:
    """The messages of one run, and the receives that wait for them."""

    __slots__ = (
        "_boxes",
        "_coming",
        "_on_taken",
        "_on_waiting",
        "_record",
        "_recorded",
        "_unread",
        "_wanted",
        "codecs",
        "last",
    )

    def __init__(
        self,
        messages: Iterable[Message],
        taken: set[int],
        record: Record,
        on_waiting: Callable[[], None],
        on_taken: Callable[[], None],
    ) -> None:
        """Sort the messages by whether the journal has them: `taken` holds those numbers.

        `on_waiting` is called when a receive begins to wait, and `on_taken` when it has ended.
        """
        self._record = record
        self._on_waiting = on_waiting
        self._on_taken = on_taken
        self._boxes: dict[str, asyncio.Queue[tuple[Message, int]]] = {}
        self._recorded: dict[int, Message] = {}
        """Messages that are in the journal and not delivered yet, by number."""
        self._unread: dict[str, deque[Message]] = {}
        """Messages that are not in the journal yet, by name, oldest first."""
        self._wanted: dict[str, int] = {}
        """How many receives wait for each name."""
        self._coming: dict[str, int] = {}
        """How many messages of each name are recorded and not delivered yet."""
        self.codecs: dict[str, Codec] = {}
        """What reads the messages of each name that a receive waits for."""
        self.last = 0
        """The number of the newest message known here."""
        for message in messages:
            self._add(message, recorded=message.number in taken)

    def _add(self, message: Message, *, recorded: bool) -> None:
        self.last = max(self.last, message.number)
        if recorded:
            self._recorded[message.number] = message
        else:
            self._unread.setdefault(message.name, deque()).append(message)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the names that a receive waits for now."""
        return tuple(sorted(name for name, count in self._wanted.items() if count))

    @property
    def has_news(self) -> bool:
        """Return whether a receive waits for a message that is here but not in the journal."""
        return any(self._unread.get(name) for name in self.waiting)

    async def take(self, name: str, codec: Codec) -> tuple[Message, int]:
        """Wait for the next message of this name. Return it with the number of its entry."""
        box = self._boxes.setdefault(name, asyncio.Queue())
        self._wanted[name] = self._wanted.get(name, 0) + 1
        self.codecs[name] = codec
        self._on_waiting()
        try:
            return await box.get()
        finally:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                self.codecs.pop(name, None)
            self._on_taken()

    def arrived(self, messages: Iterable[Message]) -> None:
        """Add messages that were read from the store, and record those that receives wait for."""
        for message in messages:
            if message.number > self.last:
                self._add(message, recorded=False)
        self.enter()

    def enter(self) -> None:
        """Record the messages that receives wait for: one per receive, oldest first."""
        for name in self.waiting:
            unread = self._unread.get(name)
            box = self._boxes.get(name)
            while unread and self._wanted[name] > self._coming.get(name, 0) + (
                box.qsize() if box else 0
            ):
                message = unread.popleft()
                self._recorded[message.number] = message
                self._coming[name] = self._coming.get(name, 0) + 1
                self._record(name, str(message.number))

    def deliver(self, number: int, seq: int) -> None:
        message = self._recorded.pop(number)
        if self._coming.get(message.name):
            self._coming[message.name] -= 1
        self._boxes.setdefault(message.name, asyncio.Queue()).put_nowait((message, seq))
