"""Notify other processes of changes through LISTEN and NOTIFY.

A notification may be lost, and there may be one for nothing; correctness never depends on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from hashlib import md5
from typing import Any

import psycopg

from outlast.store.postgres import statements as sql
from outlast.store.postgres.connection import Connection

log = logging.getLogger("outlast.store")

NOTIFY_SECONDS = 0.01
"""Seconds between two notifications of one process: NOTIFY takes a lock on the whole database."""


def channel_of(schema: str) -> str:
    """Return the name of the notification channel. It is valid whatever the schema is called."""
    return "outlast_" + md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]


class Notifier:
    """Send and receive notifications on the listener's session.

    Any thread may call `listen` and `notify`. Only the listener's thread calls the rest.
    """

    def __init__(self, schema: str, start: Callable[[], None], wake: Callable[[], None]) -> None:
        """`start` starts the listener's thread, `wake` wakes it."""
        self.channel = channel_of(schema)
        self._start = start
        self._wake = wake
        self._listeners: list[Callable[[], None]] = []
        self._pending = False
        """A notification is still to be sent."""
        self._sent_at = 0.0
        self._own_pid = 0
        """The server's process id of this session, which also receives its own notifications."""
        self._received = False
        """Another process has sent a notification that the listeners have not received yet."""

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
        self._start()

    def notify_local(self) -> None:
        """Call this process's listeners."""
        for listener in list(self._listeners):
            listener()

    def notify(self) -> None:
        """Send one notification soon, for all callers that ask until then."""
        first = not self._pending
        self._pending = True
        if first:
            self._wake()

    def close(self) -> None:
        self._listeners.clear()

    def forget_in_child(self) -> None:
        self._listeners.clear()

    # -- the listener's thread

    def subscribe(self, db: psycopg.Connection[Any]) -> None:
        self._own_pid = db.info.backend_pid
        db.add_notify_handler(self._on_notify)
        db.execute(f"LISTEN {self.channel}")

    def wake_listeners(self) -> None:
        """Call this process's listeners, and log the failure of one."""
        try:
            self.notify_local()
        except Exception:
            # Without the thread the heartbeats would stop.
            log.exception("a listener failed")

    def seconds_until_send(self) -> float | None:
        """Return when the pending notification may be sent; None if there is none."""
        if not self._pending:
            return None
        return max(0.0, self._sent_at + NOTIFY_SECONDS - time.monotonic())

    def send_pending(self, connection: Connection) -> None:
        if self._pending:
            self._pending = False
            self._sent_at = time.monotonic()
            connection.execute(sql.NOTIFY, (self.channel,))

    def receive(self, db: psycopg.Connection[Any]) -> None:
        """Read what has arrived, and call the listeners if another process has notified."""
        pgconn = db.pgconn
        pgconn.consume_input()
        while (found := pgconn.notifies()) is not None:
            self._received = self._received or found.be_pid != self._own_pid
        if self._received:
            self._received = False
            self.wake_listeners()

    def _on_notify(self, found: psycopg.Notify) -> None:
        """Note a notification that arrives during a statement, such as a heartbeat.

        psycopg takes those off the connection and passes them only to this handler.
        """
        self._received = self._received or found.pid != self._own_pid
