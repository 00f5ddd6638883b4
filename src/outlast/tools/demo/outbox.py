"""Serve an outbox over HTTP that accepts every message, however often it is sent.

It does not prevent duplicates. It only counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from outlast.tools.demo.server import Handler, serving


class Message(NamedTuple):
    to: str
    text: str
    key: str


class Outbox:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[Message] = []

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return all messages, in order of arrival."""
        with self._lock:
            return tuple(self._messages)

    def take(self, message: Message) -> int:
        """Accept a message and return its number."""
        with self._lock:
            self._messages.append(message)
            return len(self._messages)

    def number_of(self, key: str) -> int | None:
        """Return the number of the first message with this key, or None."""
        return next((n for n, message in enumerate(self.messages, 1) if message.key == key), None)

    @contextmanager
    def open(self) -> Iterator[str]:
        """Accept messages and yield the address."""
        outbox = self

        class OutboxHandler(Handler):
            def do_POST(self) -> None:  # noqa: N802 - the standard library's name
                self.answer({"number": outbox.take(Message(**self.asked()))})

            def do_GET(self) -> None:  # noqa: N802 - the standard library's name
                number = outbox.number_of(self.path.rpartition("/")[2])
                if number is None:
                    self.send_error(404)
                else:
                    self.answer({"number": number})

        with serving(OutboxHandler) as address:
            yield address
