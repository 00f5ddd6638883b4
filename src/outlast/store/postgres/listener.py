"""Run the thread that receives notifications and keeps this process's workers alive.

One thread with its own session does both: see `Notifier` and `Liveness`. Nothing depends on it: a
notification may be lost, and without a lock or a heartbeat the lease decides which worker is dead.
So the thread never raises; it tries again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from outlast.errors import StoreError
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Connection, readable
from outlast.store.postgres.failures import description
from outlast.store.postgres.heartbeat import Heartbeat
from outlast.store.postgres.liveness import Liveness
from outlast.store.postgres.notifier import Notifier

log = logging.getLogger("outlast.store")

RECONNECT_SECONDS = (0.05, 2.0)
"""Seconds before reconnecting: the first pause, and the longest."""
IDLE_SECONDS = 60.0
CLOSE_SECONDS_MAX = 2.0


class Listener:
    """Own the listening session and its thread, which starts when first needed."""

    def __init__(
        self,
        address: Address,
        heartbeat: float,
        format: Callable[[str], str],
        other_beats: Sequence[Callable[[list[str]], bool]],
        call_timeout: float,
    ) -> None:
        """`ways` are other connections that can send a heartbeat: see `Heartbeat`."""
        self._address = address
        self._beat_seconds = heartbeat
        self._connection = Connection(address, seconds_max=call_timeout)
        self.notifier = Notifier(address.schema, self._start, self._wake)
        self.liveness = Liveness(
            Heartbeat(address, heartbeat, format, other_beats, call_timeout),
            format,
            self._start,
            self._wake,
            has_session=not address.pooler,
        )
        self._stop = False
        self._farewell = True
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake_read = -1
        self._wake_write = -1

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def close(self, *, farewell: bool = True) -> None:
        """End the thread and its session.

        With `farewell`, first release the locks and send a pending notification. Without, the
        session ends as when the process dies.
        """
        self._farewell = farewell
        if farewell:
            self.notifier.close()
        self._stop = True
        self.liveness.close(release=farewell)
        thread = self._thread
        if thread is None:
            return
        self._wake()
        if thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS_MAX + 0.5)
        self._thread = None
        if not thread.is_alive():
            os.close(self._wake_read)
            os.close(self._wake_write)

    def forget_in_child(self) -> None:
        """Drop the parent's thread and session in a forked child."""
        self.notifier.forget_in_child()
        self.liveness.forget_in_child()
        self._connection.forget_in_child()
        if self._thread is not None:
            self._thread = None
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stop:
                self._wake_read, self._wake_write = os.pipe()
                os.set_blocking(self._wake_read, False)
                os.set_blocking(self._wake_write, False)
                self._thread = threading.Thread(
                    target=self._work, name="outlast-listener", daemon=True
                )
                self._thread.start()
        self._wake()

    def _wake(self) -> None:
        if self._thread is not None:
            # The pipe may be full already, or just closed.
            with suppress(OSError):
                os.write(self._wake_write, b"!")

    # -- the thread

    def _work(self) -> None:
        first, longest = RECONNECT_SECONDS
        pause = first
        while not self._stop:
            began = time.monotonic()
            try:
                self._session()
            except (psycopg.Error, OSError, StoreError) as error:
                log.debug("The listener lost its connection: %s", description(error, self._address))
                pause = first if time.monotonic() - began > longest else min(pause * 2, longest)
                self._connection.drop()
                self._wait_to_reconnect(pause)
        self._connection.drop()

    def _wait_to_reconnect(self, seconds: float) -> None:
        """Wait before reconnecting. Stop early if the listener closes."""
        until = time.monotonic() + seconds
        while not self._stop and (left := until - time.monotonic()) > 0:
            self._sleep(left, None)

    def _session(self) -> None:
        """Serve one connection for as long as it lasts. Raise psycopg.Error when it is lost."""
        db = self._connection.db()
        liveness = self.liveness
        notifier = self.notifier
        liveness.begin_session(has_session=not self._connection.pooler)
        if liveness.has_session:
            notifier.subscribe(db)
        next_beat = 0.0
        # Notifications may have been missed while there was no connection.
        notifier.wake_listeners()
        while not self._stop:
            due = time.monotonic() >= next_beat or not liveness.is_settled
            if liveness.has_session and due:
                self._beat()
                next_beat = time.monotonic() + self._beat_seconds
            if liveness.has_session:
                notifier.subscribe_new(db)
            if notifier.seconds_until_send() == 0.0:
                notifier.send_pending(self._connection)
            notifier.receive(db)
            beats = liveness.has_session and liveness.holds_any
            rest = max(0.0, next_beat - time.monotonic()) if beats else IDLE_SECONDS
            send_in = notifier.seconds_until_send()
            self._sleep(rest if send_in is None else min(rest, send_in), db)
        self._end_session()

    def _beat(self) -> None:
        if not self.liveness.beat(self._connection):
            log.warning(
                "%s is behind a pooler, where locks and LISTEN have no effect. "
                "Add ?pooler=yes to its address.",
                self._address.place,
            )

    def _sleep(self, seconds: float, db: psycopg.Connection[Any] | None) -> None:
        files = [self._wake_read] if db is None else [self._wake_read, db.fileno()]
        if self._wake_read in readable(files, seconds):
            with suppress(BlockingIOError):
                os.read(self._wake_read, 65536)

    def _end_session(self) -> None:
        if self._farewell:
            self.notifier.send_pending(self._connection)
            self.liveness.end_session(self._connection)
        self._connection.drop()
