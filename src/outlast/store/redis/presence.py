"""The ear: a thread with a connection that hears the bell, and whose being there says that this process's workers are alive.

A worker is a channel that only its own process subscribes to. When a process dies its kernel closes the connection, and the server
drops the subscription: `PUBSUB NUMSUB` then says 0, also inside a script. That is not quite the proof that a lock is: a connection can
break under a living process. So who is missed must be missed for a while, by somebody whose own connection has stood all that time
(`Missed`), and a server that has just started, or has just become the master, is not asked at all.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable

from redis.exceptions import RedisError

from outlast.store.redis.connection import Address, Wire

log = logging.getLogger("outlast.store")

MISSED_SECONDS_MIN = 1.0
"""How long a worker is missed at the least before it counts as dead: a connection that broke is made again in less."""
SILENCE_SECONDS = 5.0
"""After so long without a word the server is asked for one."""
PAUSE_MAX = 0.5
HOLD_SECONDS = 1.0


class Ear:
    def __init__(self, address: Address, origin: str, known: Callable[[str], None]) -> None:
        """`known` is called, in the ear's thread, with each worker that the server knows from now on."""
        self._address, self._origin, self._known = address, origin, known
        self._listeners: list[Callable[[], None]] = []
        self._wanted: dict[str, threading.Event] = {}
        """The workers that are to be known as alive, and whether they are."""
        self._lock = threading.Lock()
        self._connection: Wire | None = None
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

    def ring(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def hold(self, worker: str) -> bool:
        """Whether the server knows it by now. If not it will, as soon as it can be reached."""
        with self._lock:
            held = self._wanted.setdefault(worker, threading.Event())
            self._send("SUBSCRIBE", self.channel(worker))
        self._start()
        return held.wait(HOLD_SECONDS)

    def let_go(self, worker: str) -> None:
        with self._lock:
            if self._wanted.pop(worker, None) is not None:
                self._send("UNSUBSCRIBE", self.channel(worker))

    def close(self) -> None:
        self._stop.set()
        self._listeners.clear()
        with self._lock:
            connection = self._connection
            if connection is not None and connection._sock is not None:
                _hang_up(connection)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._wanted.clear()

    def forget_in_child(self) -> None:
        """After fork: a connection that the child kept open would pass for a living parent."""
        self._stop.set()
        if self._connection is not None:
            self._connection.disconnect()
        self._listeners.clear()
        self._wanted.clear()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._hear, name="outlast-ear", daemon=True)
                self._thread.start()

    def _send(self, *command: str) -> None:
        """With the lock. One that cannot be sent is made up for when the connection is made again."""
        if self._connection is not None:
            try:
                self._connection.send_command(*command, check_health=False)
            except (RedisError, OSError) as error:
                log.debug("%s: the ear lost its connection: %s", self._address.place, error)

    def _hear(self) -> None:
        pause = 0.01
        while not self._stop.is_set():
            connection = self._address.make()
            try:
                connection.connect()
                with self._lock:
                    if self._stop.is_set():
                        return
                    self._connection = connection
                    channels = [self.channel(worker) for worker in self._wanted]
                    connection.send_command(
                        "SUBSCRIBE", f"{self._address.prefix}bell:{self._address.db}", *channels
                    )
                pause = 0.01
                self.ring()  # something may have happened meanwhile
                self._read(connection)
            except (RedisError, OSError, ValueError) as error:
                log.debug("%s: the ear has no connection: %s", self._address.place, error)
            finally:
                with self._lock:
                    self._connection = None
                    for held in self._wanted.values():
                        held.clear()
                connection.disconnect()
            self._stop.wait(pause * (1 + random.random()))  # noqa: S311 - so that not all come back at once
            pause = min(2 * pause, PAUSE_MAX)

    def _read(self, connection: Wire) -> None:
        asked = False
        while not self._stop.is_set():
            if not connection.can_read(timeout=SILENCE_SECONDS):
                if asked:
                    return  # it hangs up on a server that does not answer
                asked = True
                with self._lock:
                    connection.send_command("PING", check_health=False)
                continue
            asked = False
            self._heard(connection.read_response())

    def _heard(self, said: object) -> None:
        match said:
            case ["message", _, origin] if origin != self._origin:
                self.ring()
            case ["subscribe", str(channel), *_]:
                with self._lock:
                    found = [worker for worker in self._wanted if channel == self.channel(worker)]
                for worker in found:
                    self._known(worker)
                    if (held := self._wanted.get(worker)) is not None:
                        held.set()


class Missed:
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


def _hang_up(connection: Wire) -> None:
    """Wakes the thread that reads from it."""
    try:
        connection._sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        log.debug("the ear's connection was gone already")
