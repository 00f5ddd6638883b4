"""Register this process as a worker: an id, a lock that the kernel holds, and a lease.

A worker that was declared dead registers again under another id.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from outlast.engine.lease import Lease
from outlast.engine.store_retry import patiently
from outlast.errors import StoreError
from outlast.store.commands import DeregisterWorker, RegisterWorker, Renew

if TYPE_CHECKING:
    from outlast.settings import Settings
    from outlast.store.protocol import Store
    from outlast.store.writer.group_commit_writer import GroupCommitWriter

log = logging.getLogger("outlast.worker")


class Offer(NamedTuple):
    """What a worker claims, as it is shown to operators. By default it claims nothing."""

    queues: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    concurrency: int = 0
    """How many runs it executes at once."""


class WorkerRegistration:
    """Own the id, the liveness lock and the lease of this worker."""

    def __init__(
        self, store: Store, writer: GroupCommitWriter, settings: Settings, *, has_threads: bool
    ) -> None:
        self._store = store
        self._writer = writer
        self._settings = settings
        self._has_threads = has_threads
        """Whether the lease has a thread, and registering waits for an unavailable store."""
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._lease: Lease | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self.id = ""
        self.offer = Offer()
        self._on_lost: Callable[[str], None] = lambda _: None
        self._lost_reported = ""
        self._left = False
        self._tick_seconds = min(1.0, settings.stall_max / 4, settings.health_stall / 4 or 1.0)

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call `callback` on the loop, once for each id that was declared dead."""
        self._on_lost = callback

    def announce(self, offer: Offer) -> None:
        """Set what this worker claims, before it registers."""
        self.offer = offer

    def is_alive(self, id: str) -> bool:
        """Return whether this is the worker's id and it is not known to have been declared dead.

        After a lost lease, the old id counts as dead even before there is a new one.
        """
        return id == self.id != self._lost_reported

    async def register(self, instead_of: str = "") -> None:
        """Register under a new id, at first or in place of the id that was swept.

        Concurrent calls register once. After `deregister` this does nothing.
        """
        async with self._changing:
            if self._left or self.id != instead_of:
                return
            self._report_lost(instead_of)
            self._release_liveness()
            worker = secrets.token_hex(8)
            await patiently(
                partial(self._acquire_liveness, worker),
                self._settings.store_patience,
                until=lambda: not self._has_threads,
                report=partial(log.warning, "%s"),
            )
            try:
                await self._writer.execute(self._registration(worker))
            except (StoreError, asyncio.CancelledError) as error:
                # A cancelled registration is still written, so deregister it.
                if not isinstance(error, StoreError):
                    self._writer.enqueue(DeregisterWorker(worker), lambda *_: None)
                self._store.release_liveness(worker)
                raise
            self.id = worker
            if instead_of:
                log.warning(
                    "Worker %s was declared dead and continues as %s.",
                    instead_of,
                    worker,
                    extra={"worker": worker},
                )
            if self._has_threads:
                lost = partial(self._lost_from_thread, worker)
                settings, asked = self._settings, self._store.asked
                self._lease = Lease(
                    self._writer, worker, settings.lease, settings.stall_max, lost, asked
                )
                self._lease.start()
                self._tick()

    async def _acquire_liveness(self, worker: str) -> None:
        self._store.acquire_liveness(worker)

    def _registration(self, worker: str) -> RegisterWorker:
        host, pid, lease = socket.gethostname(), os.getpid(), self._settings.lease
        return RegisterWorker(worker, host, pid, lease, *self.offer)

    def draining(self) -> Renew:
        """Return the command that marks this worker as draining and renews its lease."""
        return Renew(self.id, self._settings.lease, draining=True)

    def _tick(self) -> None:
        """Record that the loop is alive, for the lease's thread."""
        if self._lease is not None and self._lease.loop_ticked():
            self._ticking = self._loop.call_later(self._tick_seconds, self._tick)

    def stalled(self) -> float:
        """Return the seconds since the loop's last tick, minus the usual interval.

        May be called from any thread.
        """
        # Read once: another thread may clear it.
        lease = self._lease
        seen = math.inf if lease is None else lease.loop_seen
        return 0.0 if seen == math.inf else max(0.0, time.monotonic() - seen - self._tick_seconds)

    def has_read(self) -> None:
        """Note that the store was read. The lease is renewed only while reads succeed."""
        if self._lease is not None:
            self._lease.has_read()

    def trouble(self) -> str | None:
        """Return why the lease could not be renewed, or None. May be called from any thread."""
        lease = self._lease
        return None if lease is None else lease.trouble

    def stay_registered(self) -> None:
        """Renew the lease until the process is gone.

        Call this if work of this worker continues after its loop has ended.
        """
        if self._lease is not None:
            self._lease.outlive_loop()

    async def deregister(self) -> None:
        """Deregister this worker. Runs that it still holds are released.

        If that cannot be written, the worker keeps its lock, and StoreError is raised. The kernel
        releases the lock when the process is gone. The worker is then known to be dead at once, not
        when its lease expires.
        """
        # A worker that is just registering again is deregistered under its new id.
        async with self._changing:
            self._left = True
            self._stop()
            await self._writer.execute(DeregisterWorker(self.id))
            self._store.release_liveness(self.id)

    def _stop(self) -> None:
        if self._lease is not None:
            self._lease.stop()
            self._lease = None
        if self._ticking is not None:
            self._ticking.cancel()

    def _release_liveness(self) -> None:
        self._stop()
        if self.id:
            self._store.release_liveness(self.id)

    def _lost_from_thread(self, worker: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._report_lost, worker)
        except RuntimeError:
            # The loop is closed.
            return

    def _report_lost(self, worker: str) -> None:
        if worker not in ("", self._lost_reported):
            self._lost_reported = worker
            self._on_lost(worker)
