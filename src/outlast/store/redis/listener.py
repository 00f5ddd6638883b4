"""The ear: a thread with a connection that hears the bell, and whose being there says that this process's workers are alive.

A worker is a channel that only its own process subscribes to. When a process dies its kernel closes the connection, and the server
drops the subscription: `PUBSUB NUMSUB` then says 0, also inside a script. That is not quite the proof that a lock is: a connection can
break under a living process. So who is missed must be missed for a while, by somebody whose own connection has stood all that time
(`Missed`), and a server that has just started, or has just become the master, is not asked at all.
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
"""How long a worker is missed at the least before it counts as dead: a connection that broke is made again in less."""
SILENCE_SECONDS = 5.0
"""After so long without a word the server is asked for one."""
PAUSE_MAX = 0.25
HOLD_SECONDS = 1.0
CLOSE_SECONDS_MAX = 1.0


class Listener:
    def __init__(self, address: Address, origin: str, known: Callable[[str], None]) -> None:
        """`known` is called, in the ear's thread, with each worker that the server knows from now on."""
        self._address, self._origin, self._known = address, origin, known
        self._listeners: list[Callable[[], None]] = []
        self._wanted: dict[str, threading.Event] = {}
        """The workers that are to be known as alive, and whether they are."""
        self._unwanted: list[str] = []
        self._lock = threading.Lock()
        self._connection: Wire | None = None
        """Only the ear's own thread uses it: one of redis-py's that two threads use is made anew by the one under the other."""
        self._pokes: tuple[socket.socket, socket.socket] | None = None
        """What is written to the first one wakes the ear."""
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
            except Exception:  # it may be of a loop that was closed; the others must hear
                log.debug("a listener failed", exc_info=True)

    def acquire_liveness(self, worker: str) -> bool:
        """Whether the server knows it by now. If not it will, as soon as it can be reached."""
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
        """After fork: a connection that the child kept open would pass for a living parent."""
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
            except OSError as error:  # enough was said already, or it is closed
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
            except (
                Exception
            ) as error:  # whatever it is: without an ear everybody here would count as dead
                log.debug("%s: the ear has no connection: %s", self._address.place, error)
            finally:
                for held in tuple(self._wanted.values()):
                    held.clear()
                connection.disconnect()
                self._connection = None
            self._stop.wait(pause * (1 + random.random()))  # noqa: S311 - so that not all come back at once
            pause = min(2 * pause, PAUSE_MAX)

    def _read(self, connection: Wire, selector: selectors.BaseSelector) -> None:
        """Until the server does not answer any more. Another socket than the first one would be subscribed to nothing."""
        assert self._pokes is not None
        sock, (_, poked) = connection._sock, self._pokes
        for one in (sock, poked):
            selector.register(one, selectors.EVENT_READ)
        sock.sendall(packed("SUBSCRIBE", f"{self._address.prefix}bell:{self._address.db}"))
        subscribed: set[str] = set()
        asked = False
        self.notify()  # something may have happened meanwhile
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
                    return  # it hangs up on a server that does not answer
                asked = True
                sock.sendall(packed("PING"))

    def _subscribe(self, sock: socket.socket, subscribed: set[str]) -> None:
        """Say what has changed about who is to be known as alive."""
        with self._lock:
            subscribed.difference_update(self._unwanted)  # who is wanted again is to be known again
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
    """Since when each worker is missed, by this process's own clock."""

    def __init__(self, heartbeat: float) -> None:
        self._seconds = max(2 * heartbeat, MISSED_SECONDS_MIN)
        self._since: dict[str, float] = {}

    def see(self, missing: Iterable[str]) -> None:
        """Who is missing now. Whoever is not, is no longer missed."""
        now = time.monotonic()
        self._since = {worker: self._since.get(worker, now) for worker in missing}

    def forget(self) -> None:
        """Nobody could be seen for a time: everybody has the whole time again to come back."""
        self._since = {}

    def gone(self) -> list[str]:
        """Who was missed for long enough."""
        now = time.monotonic()
        return [worker for worker, since in self._since.items() if now - since >= self._seconds]
