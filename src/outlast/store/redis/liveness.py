"""Prove that this process's workers are alive by a connection.

A worker is a channel that only its own process subscribes to. When a process dies, its kernel
closes the connection and the server drops the subscription. `PUBSUB NUMSUB` then returns 0, inside
a script too.

That is weaker proof than a lock: a connection can break while its process lives. So a worker counts
as dead only after it was missing for a while, seen by a process whose own connection stood all that
time (`MissedHeartbeats`). A server that has just started, or has just become the master, is not
asked at all.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable

from outlast.store.redis.address import Address
from outlast.store.redis.connection import packed

MISSED_SECONDS_MIN = 0.6
"""The minimum time for which a worker is missing before it counts as dead. A broken connection is
restored in less.
"""
ACQUIRE_SECONDS_MAX = 1.0


class Liveness:
    """Keep the subscriptions of this process's workers on the listener's connection.

    Any thread may call `acquire` and `release`. Only the listener's thread calls the rest.
    """

    def __init__(
        self,
        address: Address,
        on_present: Callable[[str], None],
        start: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """Prepare without a connection.

        `on_present` is called with each worker that the server knows from now on. `start` starts
        the listener's thread, `wake` wakes it.
        """
        self._prefix = f"{address.prefix}alive:{address.db}:"
        self._on_present = on_present
        self._start = start
        self._wake = wake
        self._lock = threading.Lock()
        self._wanted: dict[str, threading.Event] = {}
        """The workers to show as alive, and whether the server knows them."""
        self._unwanted: list[str] = []

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self._wanted)

    def acquire(self, worker: str) -> None:
        """Show the worker as alive. Wait ACQUIRE_SECONDS_MAX for the server at most.

        If the server does not answer by then, it will know the worker as soon as it can be reached.
        """
        with self._lock:
            known = self._wanted.setdefault(worker, threading.Event())
        self._start()
        self._wake()
        known.wait(ACQUIRE_SECONDS_MAX)

    def release(self, worker: str) -> None:
        with self._lock:
            if self._wanted.pop(worker, None) is not None:
                self._unwanted.append(worker)
        self._wake()

    def close(self) -> None:
        self._wanted.clear()

    def forget_in_child(self) -> None:
        self._wanted.clear()

    # -- the listener's thread

    def subscribe(self, sock: socket.socket, subscribed: set[str]) -> None:
        """Send the changes in the set of live workers to the server."""
        with self._lock:
            # A worker that is wanted again must be subscribed again.
            subscribed.difference_update(self._unwanted)
            new = [worker for worker in self._wanted if worker not in subscribed]
            unwanted = [worker for worker in self._unwanted if worker not in self._wanted]
            self._unwanted.clear()
        for command, workers in (("SUBSCRIBE", new), ("UNSUBSCRIBE", unwanted)):
            if workers:
                sock.sendall(packed(command, *(self._prefix + worker for worker in workers)))
        subscribed.update(new)

    def on_subscribed(self, channel: str) -> None:
        """Note that the server knows a worker."""
        worker = channel.removeprefix(self._prefix)
        with self._lock:
            known = self._wanted.get(worker)
        if known is not None and channel.startswith(self._prefix):
            self._on_present(worker)
            known.set()

    def on_disconnected(self) -> None:
        for known in tuple(self._wanted.values()):
            known.clear()


class MissedHeartbeats:
    """Track since when each worker has been missing, by this process's own clock."""

    def __init__(self, heartbeat: float) -> None:
        self._seconds = max(2 * heartbeat, MISSED_SECONDS_MIN)
        self._since: dict[str, float] = {}

    def see(self, missing: Iterable[str]) -> None:
        """Record the workers that are missing now. Workers that are back are no longer tracked."""
        now = time.monotonic()
        self._since = {worker: self._since.get(worker, now) for worker in missing}

    def forget(self) -> None:
        """Forget all missing workers after a time in which none could be seen.

        Each worker has the whole time again to come back.
        """
        self._since = {}

    def gone(self) -> list[str]:
        """Return the workers that have been missing for long enough to count as dead."""
        now = time.monotonic()
        return [worker for worker, since in self._since.items() if now - since >= self._seconds]
