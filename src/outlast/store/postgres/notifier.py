"""Notify other processes of changes through LISTEN and NOTIFY.

A notification may be lost, and there may be one for nothing; correctness never depends on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from hashlib import md5
from typing import Any

import psycopg

from outlast.store.postgres import statements as sql
from outlast.store.postgres.connection import Connection
from outlast.store.topics import Listeners, Topic

log = logging.getLogger("outlast.store")

NOTIFY_SECONDS = 0.01
"""Seconds between two notifications of one process: NOTIFY takes a lock on the whole database."""


def channel_of(schema: str, topic: Topic = Topic.CHANGES) -> str:
    """Return the name of the notification channel. It is valid whatever the schema is called."""
    name = "outlast_" + md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]
    return name if topic is Topic.CHANGES else f"{name}_streams"


class Notifier:
    """Send and receive notifications on the listener's session.

    Any thread may call `listen` and `notify`. Only the listener's thread calls the rest.
    """

    def __init__(self, schema: str, start: Callable[[], None], wake: Callable[[], None]) -> None:
        """`start` starts the listener's thread, `wake` wakes it."""
        self._channels = {topic: channel_of(schema, topic) for topic in Topic}
        self._start = start
        self._wake = wake
        self._listeners = Listeners()
        self._pending: set[Topic] = set()
        """The notifications that are still to be sent."""
        self._subscribed: set[Topic] = set()
        """The topics that this session listens to."""
        self._sent_at = 0.0
        self._own_pid = 0
        """The server's process id of this session, which also receives its own notifications."""
        self._received: set[Topic] = set()
        """What other processes have notified of, and the listeners were not called for yet."""

    def channel(self, topic: Topic) -> str:
        return self._channels[topic]

    def listen(self, listener: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        self._listeners.add(topic, listener)
        self._start()

    def notify_local(self, topics: Iterable[Topic] = Topic) -> None:
        """Call this process's listeners."""
        self._listeners.call(topics)

    def notify(self, topics: tuple[Topic, ...]) -> None:
        """Send one notification per topic soon, for all callers that ask until then."""
        new = not self._pending.issuperset(topics)
        self._pending.update(topics)
        if new:
            self._wake()

    def close(self) -> None:
        self._listeners.clear()

    def forget_in_child(self) -> None:
        self._listeners.clear()

    # -- the listener's thread

    def subscribe(self, db: psycopg.Connection[Any]) -> None:
        """Begin a session that listens to nothing yet."""
        self._own_pid = db.info.backend_pid
        self._subscribed.clear()
        db.add_notify_handler(self._on_notify)

    def subscribe_new(self, db: psycopg.Connection[Any]) -> None:
        """Listen to the topics that have listeners."""
        for topic in self._listeners.topics:
            if topic not in self._subscribed:
                self._subscribed.add(topic)
                db.execute(f"LISTEN {self._channels[topic]}")

    def wake_listeners(self, topics: Iterable[Topic] = Topic) -> None:
        """Call this process's listeners, and log the failure of one."""
        try:
            self.notify_local(topics)
        except Exception:
            # Without the thread the heartbeats would stop.
            log.exception("A listener failed.")

    def seconds_until_send(self) -> float | None:
        """Return when the pending notification may be sent; None if there is none."""
        if not self._pending:
            return None
        return max(0.0, self._sent_at + NOTIFY_SECONDS - time.monotonic())

    def send_pending(self, connection: Connection) -> None:
        for topic in tuple(self._pending):
            # Discard it first: a later change needs another notification.
            self._pending.discard(topic)
            self._sent_at = time.monotonic()
            connection.execute(sql.NOTIFY, (self._channels[topic],))

    def receive(self, db: psycopg.Connection[Any]) -> None:
        """Read what has arrived, and call the listeners if another process has notified."""
        pgconn = db.pgconn
        pgconn.consume_input()
        while (found := pgconn.notifies()) is not None:
            self._note(found.relname.decode(), found.be_pid)
        if self._received:
            topics, self._received = self._received, set()
            self.wake_listeners(topics)

    def _on_notify(self, found: psycopg.Notify) -> None:
        """Note a notification that arrives during a statement, such as a heartbeat.

        psycopg takes those off the connection and passes them only to this handler.
        """
        self._note(found.channel, found.pid)

    def _note(self, channel: str, pid: int) -> None:
        if pid != self._own_pid:
            self._received.update(
                topic for topic, name in self._channels.items() if name == channel
            )
