"""Run the thread that receives notifications and keeps this process's workers alive.

One thread with its own connection does both: see `Notifier` and `Liveness`.
"""

from __future__ import annotations

import logging
import random
import selectors
import socket
import threading
from collections.abc import Callable

from outlast.store.deadline import CALL_SECONDS
from outlast.store.redis.address import Address, Wire
from outlast.store.redis.connection import packed
from outlast.store.redis.liveness import Liveness
from outlast.store.redis.notifier import Notifier
from outlast.store.topics import Topic

log = logging.getLogger("outlast.store")

SILENCE_SECONDS = 5.0
"""How long the server may be silent before the listener sends a PING."""
PAUSE_MIN = 0.01
PAUSE_MAX = 0.25
CLOSE_SECONDS_MAX = 1.0


class Listener:
    """Own the listening connection and its thread, which starts when first needed."""

    def __init__(self, address: Address, origin: str, on_present: Callable[[str], None]) -> None:
        """`origin` is what this process publishes. For `on_present` see `Liveness`."""
        self._address = address
        self.notifier = Notifier(address, origin, self._start, self._wake)
        self.liveness = Liveness(address, on_present, self._start, self._wake)
        self._starting = threading.Lock()
        self._connection: Wire | None = None
        """Only the listener's thread uses it. If two threads shared a redis-py connection, one
        could reconnect it while the other uses it.
        """
        self._pokes: tuple[socket.socket, socket.socket] | None = None
        """Writing to the first socket wakes the thread."""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def close(self) -> None:
        self._stop.set()
        self.notifier.close()
        self._wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS_MAX)
        self.liveness.close()
        self._close_pokes()

    def forget_in_child(self) -> None:
        """Close the parent's connection in a forked child. Left open, it would make a dead parent
        look alive.
        """
        # The parent's thread may have held the lock of the old event.
        self._stop = threading.Event()
        self._stop.set()
        if self._connection is not None:
            self._connection.disconnect()
        self.notifier.forget_in_child()
        self.liveness.forget_in_child()
        self._close_pokes()

    def _wake(self) -> None:
        if self._pokes is not None:
            try:
                self._pokes[0].send(b"!")
            except OSError as error:
                # The socket is full already, or closed.
                log.debug("%s: the listener was not woken: %s", self._address.place, error)

    def _close_pokes(self) -> None:
        for poke in self._pokes or ():
            poke.close()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stop.is_set():
                self._pokes = socket.socketpair()
                for poke in self._pokes:
                    poke.settimeout(0)
                self._thread = threading.Thread(
                    target=self._work, name="outlast-listener", daemon=True
                )
                self._thread.start()

    # -- the thread

    def _work(self) -> None:
        pause = PAUSE_MIN
        while not self._stop.is_set():
            connection = self._connection = self._address.make(CALL_SECONDS)
            try:
                connection.connect()
                pause = PAUSE_MIN
                with selectors.DefaultSelector() as selector:
                    self._session(connection, selector)
            except Exception as error:
                # Without this thread every worker of this process would count as dead.
                log.debug("%s: the listener has no connection: %s", self._address.place, error)
            finally:
                self.liveness.on_disconnected()
                connection.disconnect()
                self._connection = None
            # The jitter keeps processes from reconnecting all at once.
            self._stop.wait(pause * (1 + random.random()))  # noqa: S311
            pause = min(2 * pause, PAUSE_MAX)

    def _session(self, connection: Wire, selector: selectors.BaseSelector) -> None:
        """Serve one connection until the server stops answering.

        Return if redis-py reconnects: the new socket has no subscriptions.
        """
        assert self._pokes is not None
        sock, (_, poked) = connection._sock, self._pokes
        for one in (sock, poked):
            selector.register(one, selectors.EVENT_READ)
        subscribed: set[str] = set()
        topics: set[Topic] = set()
        asked = False
        # Notifications may have been missed while there was no connection.
        self.notifier.notify()
        while not self._stop.is_set() and connection._sock is sock:
            self.notifier.subscribe(sock, topics)
            self.liveness.subscribe(sock, subscribed)
            if connection.can_read(timeout=0):
                self._receive(connection.read_response())
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

    def _receive(self, message: object) -> None:
        match message:
            case ["message", channel, origin]:
                self.notifier.receive(channel, origin)
            case ["subscribe", str(channel), *_]:
                self.liveness.on_subscribed(channel)
