"""Prove that this process's workers are alive: advisory locks and heartbeats.

The listener's session holds one advisory lock per worker, which the server releases when the
process dies, and sends the heartbeats. While it cannot, `Heartbeat` sends them over another
connection. A worker is dead when its lock is free and its heartbeat is old. Without a lock or a
heartbeat the lease decides.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

from outlast.store.postgres import statements as sql
from outlast.store.postgres.connection import Connection
from outlast.store.postgres.heartbeat import Heartbeat

log = logging.getLogger("outlast.store")

ACQUIRE_SECONDS_MAX = 1.0


class Liveness:
    """Hold the locks of this process's workers on the listener's session."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        format: Callable[[str], str],
        start: Callable[[], None],
        wake: Callable[[], None],
        *,
        has_session: bool,
    ) -> None:
        """`start` starts the listener's thread, `wake` wakes it."""
        self._heartbeat = heartbeat
        self._format = format
        self._start = start
        self._wake = wake
        self._beats = has_session
        self._wanted: set[str] = set()
        """The workers whose lock the session should hold."""
        self._locked: frozenset[str] = frozenset()
        """The workers whose lock the session holds now."""
        self._changed = threading.Condition()
        self._backend_pid: int | None = None
        self.has_session = has_session
        """False behind a pooler: no session belongs to this process, and a lock proves nothing."""
        self.on_time: Callable[[float], None] = lambda _: None
        """Called with the server's time after each heartbeat."""

    def acquire(self, worker: str) -> None:
        """Hold the worker's lock from now on. Wait ACQUIRE_SECONDS_MAX for the server at most.

        If the server does not answer by then, the thread takes the lock as soon as it does.
        """
        self._wanted.add(worker)
        self._start()
        if self._beats:
            self._heartbeat.start(self._wanted)
        with self._changed:
            self._changed.wait_for(
                lambda: worker in self._locked or not self.has_session, ACQUIRE_SECONDS_MAX
            )

    def release(self, worker: str) -> None:
        self._wanted.discard(worker)
        self._wake()

    def close(self, *, release: bool) -> None:
        """End the heartbeats. With `release`, the session also releases the locks as it ends."""
        if release:
            self._wanted.clear()
        self._heartbeat.close()

    def forget_in_child(self) -> None:
        self._wanted.clear()
        self._heartbeat.forget_in_child()

    # -- the listener's thread

    @property
    def holds_any(self) -> bool:
        return bool(self._locked)

    @property
    def is_settled(self) -> bool:
        """Return whether the session holds the locks that it should."""
        return self._locked == self._wanted

    def begin_session(self, *, has_session: bool) -> None:
        """Note that a new session holds no locks yet."""
        self._backend_pid = None
        self._note(frozenset(), has_session=has_session)

    def beat(self, connection: Connection) -> bool:
        """Take and release locks, and send a heartbeat.

        Return False if the server's process has changed: then a pooler is in between.
        """
        for worker in self._locked - self._wanted:
            connection.execute(self._format(sql.QUIET), (worker, True))
            self._locked -= {worker}
        wanted = frozenset(self._wanted)
        if not wanted:
            return True
        new = sorted(wanted - self._locked)
        values = (sorted(wanted), self._heartbeat.every, new)
        answer = connection.execute(self._format(sql.HEART), values)
        self._heartbeat.note_sent()
        self._note(self._locked | wanted, has_session=True)
        pid, now = json.loads(answer[0][0])
        self.on_time(now)
        same = self._backend_pid in (None, pid)
        self._backend_pid = int(pid)
        if not same:
            self._note(self._locked, has_session=False)
        return same

    def end_session(self, connection: Connection) -> None:
        """Release the locks before the session ends in order."""
        for worker in self._locked:
            connection.execute(self._format(sql.QUIET), (worker, False))

    def _note(self, locked: frozenset[str], *, has_session: bool) -> None:
        with self._changed:
            self._locked = locked
            self.has_session = has_session
            self._changed.notify_all()
