"""Open the store of an engine, and undo that if it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from outlast.engine.background import Background
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient, call_until
from outlast.engine.store_retry import patiently
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings

log = logging.getLogger("outlast")


class Startup:
    """Open the store, start the writer and register the worker."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        notifier: ChangeNotifier,
        *,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
        waits: bool,
    ) -> None:
        self._client = client
        self._registration = registration
        self._notifier = notifier
        self._background = background
        self._shutdown = shutdown
        self._settings = settings
        self._waits = waits
        """Whether to wait for a store that is unavailable."""

    async def open(self, report_waiting: Callable[[str], None] = log.warning) -> None:
        """Open the store, start the writer and register this worker.

        Call `report_waiting` once if the store is unavailable. If opening fails or is cancelled,
        close the store and raise.
        """
        self._client.store.call_timeout = self._settings.call_timeout
        opening = self._background.spawn(self._open_store(report_waiting), quiet=True)
        try:
            await asyncio.shield(opening)
        except BaseException:
            opening.add_done_callback(lambda _: self._abort())
            raise
        self._client.writer.start()
        try:
            await self._registration.register()
        except BaseException:
            self._client.writer.close()
            self._abort()
            raise

    async def _open_store(self, report_waiting: Callable[[str], None]) -> None:
        """Open the store and listen for changes.

        Wait as long as a write would if the store is unavailable.
        """
        store = self._client.store
        patience = self._settings.store_patience
        deadline = time.monotonic() + patience
        for action in (store.open, partial(store.listen, self._notifier.notify_threadsafe)):
            await patiently(
                partial(self._background.in_thread, call_until, deadline, action),
                patience,
                until=lambda: not self._waits or self._shutdown.closing,
                report=report_waiting,
            )

    def _abort(self) -> None:
        self._client.store.close()
        self._background.close()
