"""Notify other processes of changes through a channel of the server.

The script that commits publishes, so there is nothing to send here. A notification may be lost, and
there may be one for nothing; correctness never depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from outlast.store.redis.address import Address

log = logging.getLogger("outlast.store")


class Notifier:
    """Call this process's listeners when another process has committed something of interest."""

    def __init__(self, address: Address, origin: str, start: Callable[[], None]) -> None:
        """`origin` is what this process publishes. `start` starts the listener's thread."""
        self.channel = f"{address.prefix}notify:{address.db}"
        self._origin = origin
        self._start = start
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
        self._start()

    def notify(self) -> None:
        """Call this process's listeners."""
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # Its event loop may be closed. The other listeners must still be notified.
                log.debug("a listener failed", exc_info=True)

    def receive(self, origin: object) -> None:
        """Handle a message of the channel. A process ignores its own."""
        if origin != self._origin:
            self.notify()

    def close(self) -> None:
        self._listeners.clear()

    def forget_in_child(self) -> None:
        self._listeners.clear()
