"""Listen for notifications, send them, and show that this process's workers are alive.

One thread with its own connection does all of it. It holds the locks that prove that the workers
are alive, and sends their heartbeats. While it cannot, the thread in `heartbeat` sends them.

Nothing depends on it: a notification may be lost, and without a lock or a heartbeat the lease
decides which worker is dead. So the thread never raises; it tries again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import md5
from typing import Any

import psycopg

from outlast.errors import StoreError
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Connection, readable
from outlast.store.postgres.failures import words
from outlast.store.postgres.heartbeat import Heartbeat

log = logging.getLogger("outlast.store")

RING_SECONDS = 0.01
"""Seconds between two notifications of one process: NOTIFY takes a lock on the whole database."""
AGAIN_SECONDS = (0.05, 2.0)
"""Seconds before reconnecting: the first pause, and the longest."""
HOLD_SECONDS_MAX = 1.0
CLOSE_SECONDS_MAX = 2.0


def channel(schema: str) -> str:
    """Return the name of the notification channel. It is valid whatever the schema is called."""
    return "outlast_" + md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]


class Listener:
    def __init__(
        self,
        address: Address,
        heartbeat: float,
        format: Callable[[str], str],
        ways: Sequence[Callable[[list[str]], bool]],
        call_timeout: float,
    ) -> None:
        self._address, self._heartbeat = address, heartbeat
        self._format = format
        self._heartbeat_thread = Heartbeat(address, heartbeat, format, ways, call_timeout)
        self._db = Connection(address, seconds_max=call_timeout)
        self._channel = channel(address.schema)
        self._listeners: list[Callable[[], None]] = []
        self._workers: set[str] = set()
        """The workers whose lock the thread should hold."""
        self._ring = False
        self._rung = 0.0
        self._own = 0
        """The server's process id of this session, which also receives its own notifications."""
        self._heard = False
        """Another process has sent a notification that the listeners have not received yet."""
        self._stop = False
        self._farewells = True
        self._thread: threading.Thread | None = None
        self._wake_read = self._wake_write = -1
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._locked: frozenset[str] = frozenset()
        """The workers whose lock the session holds now."""
        self._alone = bool(address.pooler)
        """Whether a pooler is in between. Then no session belongs to this process, and there is
        nothing to lock or to listen for.
        """
        self.learn: Callable[[float], None] = lambda _: None
        """Called with the server's time after each heartbeat."""

    @property
    def is_awake(self) -> bool:
        return self._thread is not None

    # -- called by the store, from any thread

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
        self._start()

    def acquire_liveness(self, worker: str) -> None:
        """Hold the worker's lock from now on. Wait HOLD_SECONDS_MAX for the server at most.

        If the server does not answer by then, the thread takes the lock as soon as it does.
        """
        self._workers.add(worker)
        self._start()
        if not self._address.pooler:
            self._heartbeat_thread.start(self._workers)
        with self._changed:
            self._changed.wait_for(lambda: worker in self._locked or self._alone, HOLD_SECONDS_MAX)

    def release_liveness(self, worker: str) -> None:
        self._workers.discard(worker)
        self._wake()

    def notify_local(self) -> None:
        for listener in list(self._listeners):
            listener()

    def notify(self) -> None:
        """Send one notification soon, for all callers that ask until then."""
        first, self._ring = not self._ring, True
        if first:
            self._wake()

    def close(self, *, farewell: bool = True) -> None:
        """End the thread and its session.

        With `farewell`, first release the locks and send a pending notification. Without, the
        session ends as when the process dies.
        """
        self._farewells = farewell
        if farewell:
            self._listeners.clear()
            self._workers.clear()
        self._stop = True
        self._heartbeat_thread.close()
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
        self._listeners.clear()
        self._workers.clear()
        self._db.forget_in_child()
        self._heartbeat_thread.forget_in_child()
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
                self._thread = threading.Thread(target=self._work, name="outlast-ear", daemon=True)
                self._thread.start()
        self._wake()

    def _wake(self) -> None:
        if self._thread is not None:
            # The pipe may be full already, or just closed.
            with suppress(OSError):
                os.write(self._wake_write, b"!")

    # -- the thread

    def _work(self) -> None:
        first, longest = AGAIN_SECONDS
        pause = first
        while not self._stop:
            began = time.monotonic()
            try:
                self._session()
            except (psycopg.Error, OSError, StoreError) as error:
                log.debug("the ear lost its connection: %s", words(error, self._address))
                pause = first if time.monotonic() - began > longest else min(pause * 2, longest)
                self._db.drop()
                self._rest(pause)
        self._db.drop()

    def _rest(self, seconds: float) -> None:
        """Wait before reconnecting. Stop early if the listener closes."""
        until = time.monotonic() + seconds
        while not self._stop and (left := until - time.monotonic()) > 0:
            self._sleep(left, None)

    def _session(self) -> None:
        """Serve one connection for as long as it lasts. Raise psycopg.Error when it is lost."""
        db = self._db.db()
        locked: set[str] = set()
        self._say(locked, alone=self._db.pooler)
        if not self._alone:
            self._own = db.info.backend_pid
            db.add_notify_handler(self._note)
            db.execute(f"LISTEN {self._channel}")
        pid: int | None = None
        next_beat = 0.0
        # Notifications may have been missed while there was no connection.
        self._tell()
        while not self._stop:
            now = time.monotonic()
            if not self._alone and (now >= next_beat or locked != self._workers):
                seen = self._beat(locked)
                if seen is not None and pid is not None and seen != pid:
                    log.warning(
                        "%s is behind a pooler: locks and LISTEN are of no use. Say ?pooler=yes.",
                        self._address.place,
                    )
                    self._say(set(), alone=True)
                pid = seen if seen is not None else pid
                next_beat = time.monotonic() + self._heartbeat
            if self._ring and time.monotonic() - self._rung >= RING_SECONDS:
                self._send_notify()
            self._hear(db)
            rest = next_beat - time.monotonic() if locked and not self._alone else 60.0
            if self._ring:
                rest = min(rest, RING_SECONDS)
            self._sleep(max(rest, 0.0), db)
        self._farewell(locked)

    def _beat(self, locked: set[str]) -> int | None:
        for worker in locked - self._workers:
            self._db.execute(self._format(sql.QUIET), (worker, True))
            locked.discard(worker)
        wanted = set(self._workers)
        if not wanted:
            return None
        answer = self._db.execute(
            self._format(sql.HEART), (sorted(wanted), self._heartbeat, sorted(wanted - locked))
        )
        locked |= wanted
        self._heartbeat_thread.felt()
        self._say(locked, alone=False)
        pid, now = json.loads(answer[0][0])
        self.learn(now)
        return int(pid)

    def _say(self, locked: set[str], *, alone: bool) -> None:
        with self._changed:
            self._locked, self._alone = frozenset(locked), alone
            self._changed.notify_all()

    def _send_notify(self) -> None:
        self._ring, self._rung = False, time.monotonic()
        self._db.execute(sql.NOTIFY, (self._channel,))

    def _note(self, heard: psycopg.Notify) -> None:
        """Note a notification that arrives during a statement, such as a heartbeat.

        psycopg takes those off the connection and passes them only to this handler.
        """
        self._heard = self._heard or heard.pid != self._own

    def _hear(self, db: psycopg.Connection[Any]) -> None:
        pgconn = db.pgconn
        pgconn.consume_input()
        while (heard := pgconn.notifies()) is not None:
            self._heard = self._heard or heard.be_pid != self._own
        if self._heard:
            self._heard = False
            self._tell()

    def _tell(self) -> None:
        try:
            self.notify_local()
        except Exception:
            # Without this thread the heartbeats would stop.
            log.exception("a listener failed")

    def _sleep(self, seconds: float, db: psycopg.Connection[Any] | None) -> None:
        files = [self._wake_read] if db is None else [self._wake_read, db.fileno()]
        if self._wake_read in readable(files, seconds):
            with suppress(BlockingIOError):
                os.read(self._wake_read, 65536)

    def _farewell(self, locked: set[str]) -> None:
        if self._farewells:
            if self._ring:
                self._send_notify()
            for worker in locked:
                self._db.execute(self._format(sql.QUIET), (worker, False))
        self._db.drop()
