"""Notify other processes of changes through channels of the server.

The script that commits publishes, so there is nothing to send here. A notification may be lost, and
there may be one for nothing; correctness never depends on it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable

from outlast.store.redis.address import Address
from outlast.store.redis.connection import packed
from outlast.store.topics import Listeners, Topic

log = logging.getLogger("outlast.store")


class Notifier:
    """Call this process's listeners when another process has committed something of interest."""

    def __init__(
        self,
        address: Address,
        origin: str,
        start: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """`origin` is what this process publishes. `start` starts the listener's thread, `wake`
        wakes it.
        """
        self.channels = {
            Topic.CHANGES: f"{address.prefix}notify:{address.db}",
            Topic.STREAMS: f"{address.prefix}published:{address.db}",
        }
        self._origin = origin
        self._start, self._wake = start, wake
        self._listeners = Listeners()

    def listen(self, listener: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        self._listeners.add(topic, listener)
        self._start()
        self._wake()

    def subscribe(self, sock: socket.socket, subscribed: set[Topic]) -> None:
        """Subscribe to the topics that have listeners, except those in `subscribed`."""
        for topic in self._listeners.topics:
            if topic not in subscribed:
                subscribed.add(topic)
                sock.sendall(packed("SUBSCRIBE", self.channels[topic]))

    def notify(self, topics: Iterable[Topic] = Topic) -> None:
        """Call this process's listeners."""
        for listener in self._listeners.of(topics):
            try:
                listener()
            except Exception:
                # Its event loop may be closed. The other listeners must still be notified.
                log.debug("A listener failed.", exc_info=True)

    def receive(self, channel: object, origin: object) -> None:
        """Handle a message of a channel. A process ignores its own."""
        if origin != self._origin:
            self.notify(topic for topic, name in self.channels.items() if name == channel)

    def close(self) -> None:
        self._listeners.clear()

    def forget_in_child(self) -> None:
        self._listeners.clear()
