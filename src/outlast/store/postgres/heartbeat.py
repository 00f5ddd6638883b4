"""The heart: a thread that sees to it that this process's workers beat. The ear beats for them in the session that has their locks; while it does not,
because its session was cut or it takes long to connect, the heart beats over another connection.

It never connects itself, and never waits for who has a connection: it takes one that is free. If none is, a helper makes one.
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
from outlast.store.postgres.failures import words

log = logging.getLogger("outlast.store")

CLOSE_SECONDS_MAX = 1.0


class Heartbeat:
    def __init__(
        self,
        address: Address,
        every: float,
        format: Callable[[str], str],
        ways: Sequence[Callable[[list[str]], bool]],
        call_timeout: float,
    ) -> None:
        self._address, self._every, self._format = address, every, format
        self._call_timeout = call_timeout
        self._ways = ways
        """Connections that may be free: each beats, or says False at once."""
        self._workers: set[str] = set()
        self._beaten = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._helper: threading.Thread | None = None
        self._spare: Connection | None = None

    def start(self, workers: set[str]) -> None:
        """`workers` is the owner's own set: whoever is in there at the time beats."""
        self._workers = workers
        if self._thread is None and not self._stop.is_set():
            self._beaten = time.monotonic()
            self._thread = _started(
                threading.Thread(target=self._work, name="outlast-heart", daemon=True)
            )

    def felt(self) -> None:
        """The ear has just beaten, or there is nothing to beat for."""
        self._beaten = time.monotonic()

    def close(self) -> None:
        self._stop.set()
        for thread in (self._thread, self._helper):
            if thread is not None and thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS_MAX)
        self._thread = None
        if self._spare is not None and not self._is_helped():
            self._spare.drop()

    def forget_in_child(self) -> None:
        """After fork: the threads and the session are the parent's."""
        self._stop.set()
        self._thread = self._helper = None
        if self._spare is not None:
            self._spare.forget_in_child()

    # -- the thread

    def _work(self) -> None:
        while not self._stop.wait(self._every / 2):
            try:
                self._look()
            except Exception:  # without this thread a living worker may be taken for a dead one
                log.exception("the heart stumbled")

    def _look(self) -> None:
        if time.monotonic() - self._beaten < self._every:
            if self._spare is not None and not self._is_helped():
                self._spare.drop()
                self._spare = None
            return
        workers = sorted(self._workers)
        if not workers or any(way(workers) for way in self._ways):
            self.felt()
        elif not self._is_helped():
            helper = threading.Thread(
                target=self._beat_alone, args=(workers,), name="outlast-heart-helper", daemon=True
            )
            self._helper = _started(helper)

    def _is_helped(self) -> bool:
        return self._helper is not None and self._helper.is_alive()

    def _beat_alone(self, workers: list[str]) -> None:
        spare = self._spare = self._spare or Connection(
            self._address, seconds_max=self._call_timeout
        )
        try:
            spare.execute(self._format(sql.HEART), (workers, self._every, None))
        except (psycopg.Error, OSError, StoreError) as error:
            log.debug("the heart cannot beat: %s", words(error, self._address))
            spare.drop()
            self._stop.wait(self._every)
        else:
            self.felt()
            if self._stop.is_set():
                spare.drop()


def _started(thread: threading.Thread) -> threading.Thread:
    """Started before anybody knows of it: who closes in between cannot join one that is not."""
    thread.start()
    return thread
