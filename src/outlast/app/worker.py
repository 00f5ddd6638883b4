"""This process in the store's eyes: an id, a lock that the kernel holds, and a lease. Taken for dead, it comes back under
another id."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from functools import partial

from outlast.app.lease import Lease
from outlast.app.settings import Settings
from outlast.record.writer import Writer
from outlast.store.protocol import Store
from outlast.store.verbs import Enlist, Leave


class Worker:
    def __init__(self, store: Store, writer: Writer, settings: Settings, *, inline: bool) -> None:
        self._store, self._writer, self._settings, self._inline = store, writer, settings, inline
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._lease: Lease | None = None
        self.id = ""
        self.lost: Callable[[str], None] = lambda _: None
        """Called on the loop with the id that was taken for dead."""

    async def enlist(self, instead_of: str = "") -> None:
        """Get an id, or another one instead of one that was swept. Whoever asks second finds it done."""
        async with self._changing:
            if self.id != instead_of:
                return
            self._let_go()
            worker = secrets.token_hex(8)
            self._store.hold(worker)
            await self._writer.ask(Enlist(worker, socket.gethostname(), os.getpid(), self._settings.lease))
            self.id = worker
            if not self._inline:
                lost = partial(self._lost_from_thread, worker)
                self._lease = Lease(self._writer, worker, self._settings.lease, lost)
                self._lease.start()

    async def leave(self) -> None:
        """Strike this worker off. Runs that it still holds are given back."""
        try:
            await self._writer.ask(Leave(self.id))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._lease is not None:
            self._lease.stop()
            self._lease = None
        if self.id:
            self._store.let_go(self.id)

    def _lost_from_thread(self, worker: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self.lost, worker)
        except RuntimeError:
            return  # the loop is closed
