"""Listen for notifications in a thread whose connection proves that the workers are alive.

A worker is a channel that only its own process subscribes to. When a process dies, its kernel
closes the connection and the server drops the subscription. `PUBSUB NUMSUB` then returns 0, inside
a script too.

That is weaker proof than a lock: a connection can break while its process lives. So a worker counts
as dead only after it was missing for a while, seen by a process whose own connection stood all that
time (`MissedHeartbeats`). A server that has just started, or has just become the master, is not
asked at all.
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable

from outlast.store.deadline import CALL_SECONDS
from outlast.store.redis.connection import Address, Wire, packed

log = logging.getLogger("outlast.store")

MISSED_SECONDS_MIN = 0.6
"""The minimum time for which a worker is missing before it counts as dead. A broken connection is
restored in less.
"""
SILENCE_SECONDS = 5.0
"""How long the server may be silent before the listener sends a PING."""
PAUSE_MAX = 0.25
HOLD_SECONDS = 1.0
CLOSE_SECONDS_MAX = 1.0


class Listener:
    def __init__(self, address: Address, origin: str, known: Callable[[str], None]) -> None:
        """Prepare to listen. The thread starts with the first listener or worker.

        The thread calls `known` with each worker that the server knows from now on.
        """
        self._address, self._origin, self._known = address, origin, known
        self._listeners: list[Callable[[], None]] = []
        self._wanted: dict[str, threading.Event] = {}
        """The workers to show as alive, and whether the server knows them."""
        self._unwanted: list[str] = []
        self._lock = threading.Lock()
        self._connection: Wire | None = None
        """Only the listener's thread uses it. If two threads shared a redis-py connection, one
        could reconnect it while the other uses it.
        """
        self._pokes: tuple[socket.socket, socket.socket] | None = None
        """Writing to the first socket wakes the thread."""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def channel(self, worker: str) -> str:
        return f"{self._address.prefix}alive:{self._address.db}:{worker}"

    @property
    def held(self) -> frozenset[str]:
        return frozenset(self._wanted)

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
        self._start()

    def notify(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # Its event loop may be closed. The other listeners must still be notified.
                log.debug("a listener failed", exc_info=True)

    def acquire_liveness(self, worker: str) -> bool:
        """Show the worker as alive, and return whether the server knows it by now.

        If not, it will know the worker as soon as it can be reached.
        """
        with self._lock:
            held = self._wanted.setdefault(worker, threading.Event())
        self._start()
        self._wake()
        return held.wait(HOLD_SECONDS)

    def release_liveness(self, worker: str) -> None:
        with self._lock:
            if self._wanted.pop(worker, None) is not None:
                self._unwanted.append(worker)
        self._wake()

    def close(self) -> None:
        self._stop.set()
        self._listeners.clear()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS_MAX)
        self._wanted.clear()
        self._close_pokes()

    def forget_in_child(self) -> None:
        """Close the parent's connection in a forked child. Left open, it would make a dead parent
        look alive.
        """
        self._stop.set()
        if self._connection is not None:
            self._connection.disconnect()
        self._listeners.clear()
        self._wanted.clear()
        self._close_pokes()

    def _wake(self) -> None:
        if self._pokes is not None:
            try:
                self._pokes[0].send(b"!")
            except OSError as error:
                # The socket is full already, or closed.
                log.debug("%s: the ear was not woken: %s", self._address.place, error)

    def _close_pokes(self) -> None:
        for poke in self._pokes or ():
            poke.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._pokes = socket.socketpair()
                for poke in self._pokes:
                    poke.settimeout(0)
                self._thread = threading.Thread(target=self._hear, name="outlast-ear", daemon=True)
                self._thread.start()

    def _hear(self) -> None:
        pause = 0.01
        while not self._stop.is_set():
            connection = self._connection = self._address.make(CALL_SECONDS)
            try:
                connection.connect()
                pause = 0.01
                with selectors.DefaultSelector() as selector:
                    self._read(connection, selector)
            except Exception as error:
                # Without this thread every worker of this process would count as dead.
                log.debug("%s: the ear has no connection: %s", self._address.place, error)
            finally:
                for held in tuple(self._wanted.values()):
                    held.clear()
                connection.disconnect()
                self._connection = None
            # The jitter keeps processes from reconnecting all at once.
            self._stop.wait(pause * (1 + random.random()))  # noqa: S311
            pause = min(2 * pause, PAUSE_MAX)

    def _read(self, connection: Wire, selector: selectors.BaseSelector) -> None:
        """Read notifications until the server stops answering.

        Return if redis-py reconnects: the new socket has no subscriptions.
        """
        assert self._pokes is not None
        sock, (_, poked) = connection._sock, self._pokes
        for one in (sock, poked):
            selector.register(one, selectors.EVENT_READ)
        sock.sendall(packed("SUBSCRIBE", f"{self._address.prefix}bell:{self._address.db}"))
        subscribed: set[str] = set()
        asked = False
        # Notifications may have been missed while there was no connection.
        self.notify()
        while not self._stop.is_set() and connection._sock is sock:
            self._subscribe(sock, subscribed)
            if connection.can_read(timeout=0):
                self._heard(connection.read_response())
                asked = False
                continue
            ready = [key.fileobj for key, _ in selector.select(SILENCE_SECONDS)]
            if poked in ready:
                poked.recv(4096)
            elif not ready:
                if asked:
                    # The server did not answer the PING.
                    return
                asked = True
                sock.sendall(packed("PING"))

    def _subscribe(self, sock: socket.socket, subscribed: set[str]) -> None:
        """Send the changes in the set of live workers to the server."""
        with self._lock:
            # A worker that is wanted again must be subscribed again.
            subscribed.difference_update(self._unwanted)
            new = [worker for worker in self._wanted if worker not in subscribed]
            unwanted = [worker for worker in self._unwanted if worker not in self._wanted]
            self._unwanted.clear()
        for command, workers in (("SUBSCRIBE", new), ("UNSUBSCRIBE", unwanted)):
            if workers:
                sock.sendall(packed(command, *map(self.channel, workers)))
        subscribed.update(new)

    def _heard(self, said: object) -> None:
        match said:
            case ["message", _, origin] if origin != self._origin:
                self.notify()
            case ["subscribe", str(channel), *_]:
                with self._lock:
                    found = [worker for worker in self._wanted if channel == self.channel(worker)]
                for worker in found:
                    self._known(worker)
                    if (held := self._wanted.get(worker)) is not None:
                        held.set()


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
