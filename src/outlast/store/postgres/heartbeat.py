"""Keep the heartbeats of this process's workers going.

The listener sends them in the session that holds the workers' locks. While it cannot, because its
session was cut or connecting takes long, the thread here sends them over another connection.

The thread never connects itself and never waits for a busy connection: it uses a free one. If none
is free, a helper thread makes one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import psycopg

from outlast.errors import StoreError
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Connection
from outlast.store.postgres.failures import description

log = logging.getLogger("outlast.store")

CLOSE_SECONDS_MAX = 1.0


class Heartbeat:
    def __init__(
        self,
        address: Address,
        every: float,
        format: Callable[[str], str],
        other_beats: Sequence[Callable[[list[str]], bool]],
        call_timeout: float,
    ) -> None:
        self._address = address
        self.every = every
        self._format = format
        self._call_timeout = call_timeout
        self._other_beats = other_beats
        """Connections that may be free. Each sends a heartbeat, or returns False at once."""
        self._workers: set[str] = set()
        self._sent_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._helper: threading.Thread | None = None
        self._spare: Connection | None = None

    def start(self, workers: set[str]) -> None:
        """Start the thread. `workers` is the caller's own set: heartbeats go out for its current
        members.
        """
        self._workers = workers
        if self._thread is None and not self._stop.is_set():
            self._sent_at = time.monotonic()
            self._thread = _started(
                threading.Thread(target=self._work, name="outlast-heartbeat", daemon=True)
            )

    def note_sent(self) -> None:
        """Note that a heartbeat was just sent, or that no worker needs one."""
        self._sent_at = time.monotonic()

    def close(self) -> None:
        self._stop.set()
        for thread in (self._thread, self._helper):
            if thread is not None and thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS_MAX)
        self._thread = None
        if self._spare is not None and not self._is_helped():
            self._spare.drop()

    def forget_in_child(self) -> None:
        """Drop the parent's threads and session in a forked child."""
        # A thread of the parent may have held the lock of the old event.
        self._stop = threading.Event()
        self._stop.set()
        self._thread = self._helper = None
        if self._spare is not None:
            self._spare.forget_in_child()

    # -- the thread

    def _work(self) -> None:
        while not self._stop.wait(self.every / 2):
            try:
                self._check()
            except Exception:
                # Without this thread a live worker may be considered dead.
                log.exception("Failed to send a heartbeat.")

    def _check(self) -> None:
        if time.monotonic() - self._sent_at < self.every:
            if self._spare is not None and not self._is_helped():
                self._spare.drop()
                self._spare = None
            return
        workers = sorted(self._workers)
        if not workers or any(beat(workers) for beat in self._other_beats):
            self.note_sent()
        elif not self._is_helped():
            helper = threading.Thread(
                target=self._beat_alone,
                args=(workers,),
                name="outlast-heartbeat-helper",
                daemon=True,
            )
            self._helper = _started(helper)

    def _is_helped(self) -> bool:
        return self._helper is not None and self._helper.is_alive()

    def _beat_alone(self, workers: list[str]) -> None:
        spare = self._spare = self._spare or Connection(
            self._address, seconds_max=self._call_timeout
        )
        try:
            spare.execute(self._format(sql.HEART), (workers, self.every, None))
        except (psycopg.Error, OSError, StoreError) as error:
            log.debug("Could not send a heartbeat: %s", description(error, self._address))
            spare.drop()
            self._stop.wait(self.every)
        else:
            self.note_sent()
            if self._stop.is_set():
                spare.drop()


def _started(thread: threading.Thread) -> threading.Thread:
    """Start a thread before it is stored: `close` cannot join a thread that has not started."""
    thread.start()
    return thread
