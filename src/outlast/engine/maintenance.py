"""Do the periodic work of a process that claims: sweep, tidy up, and prune.

Many workers together sweep as often as two would, so the load on the store does not grow with the
fleet.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform

from outlast.engine.background import Background
from outlast.engine.dead_worker_sweeper import Sweeper
from outlast.engine.log_backoff import LogBackoff
from outlast.engine.sessions import prune_sessions
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreBroken, StoreError
from outlast.execution.durations import Durations
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.commands import Prune, RecordDurations
from outlast.store.session_rows import SessionQuery
from outlast.telemetry.error_text import redact

log = logging.getLogger("outlast.worker")

PRUNE_BATCH = 1_000
RAISED = "budgets-raised"
"""See `outlast.engine.budget_store`."""
SESSIONS_SECONDS = 60.0
"""Seconds between two searches for expired sessions."""


class Maintenance:
    """Keep the store tidy while this process claims runs or items."""

    def __init__(
        self,
        sweeper: Sweeper,
        client: StoreClient,
        *,
        durations: Durations,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
    ) -> None:
        self.sweeper = sweeper
        self._client = client
        self._durations = durations
        self._background = background
        self._shutdown = shutdown
        self._settings = settings
        self._now = background.loop.time
        self._log_backoff = LogBackoff(self._now)
        self._peers = 1
        """Number of workers, including this one."""
        self._acked_at: float | None = None
        """When an item was last acked here, by the store's clock. None if all of them are pruned.

        The store keeps acked items for `item_memory` seconds.
        """
        self.has_started = False
        """Whether this process claims runs or items."""
        self.store_lost: asyncio.Future[StoreBroken] = background.loop.create_future()
        """Done, with the error, when this process has lost its store for good."""

    def start(self) -> None:
        """Start the periodic work. A repeat is harmless."""
        if not self.has_started:
            self.has_started = True
            self._background.spawn(self._work())

    def item_acked(self) -> None:
        """Note that there will be acked items to prune."""
        self._acked_at = self._client.store.now()

    async def _work(self) -> None:
        """Work until the engine closes. Log failures and continue."""
        tidy_at = sessions_at = self._now() + self._settings.poll
        while not self._shutdown.closing:
            try:
                await self.sweeper.sweep()
                if self._now() >= tidy_at:
                    await self._tidy()
                    tidy_at = self._now() + self._settings.poll
                if self._now() >= sessions_at:
                    await prune_sessions(self._client.store, self._client.writer, PRUNE_BATCH)
                    sessions_at = self._now() + SESSIONS_SECONDS
            except Exception as error:
                self._note_failure(error)
            else:
                self._log_backoff.reset()
            await asyncio.sleep(self._pause())

    async def _tidy(self) -> None:
        await self.sweeper.tidy()
        self._peers = len(await self._client.read(self._client.store.workers))
        await self._prune_acked()
        await self._record_durations()
        await self._resume_answered()

    def _note_failure(self, error: Exception) -> None:
        if self._log_backoff.should_log():
            if isinstance(error, StoreError):
                log.warning("Could not look for dead workers: %s", error)
            else:
                log.error(
                    "Failed to look for dead workers.",
                    exc_info=redact(error, self._settings.log_values),
                )
        if isinstance(error, StoreBroken) and error.gone and not self.store_lost.done():
            self.store_lost.set_result(error)

    def _pause(self) -> float:
        """Return the seconds until the next sweep. The first to find a dead worker sweeps it."""
        heartbeat, crowd = self._settings.heartbeat, self._peers / 2
        if crowd <= 1:
            return heartbeat
        # The jitter is no secret.
        return min(heartbeat * crowd * uniform(0.5, 1.5), self._settings.lease / 4)  # noqa: S311

    async def _resume_answered(self) -> None:
        """Resume the runs whose budgets were raised by a process that died before it did that."""
        if await self._client.read(self._client.store.sessions, SessionQuery(RAISED, limit=1)):
            # Few programs have budgets.
            from outlast.engine.budgets import Budgets

            await Budgets(self._client, self._background).resume_all_answered()

    async def _record_durations(self) -> None:
        """Record how long steps took, for the drains of other workers."""
        samples = self._durations.fresh()
        if samples:
            await self._client.writer.execute(RecordDurations(samples))

    async def _prune_acked(self) -> None:
        """Prune acked items that are older than `item_memory`, if any were acked here."""
        if self._acked_at is None:
            return
        before = self._client.store.now() - self._settings.item_memory
        if before > self._acked_at:
            self._acked_at = None
        # A short batch may only mean that time ran out.
        while await self._client.writer.execute(Prune(before, PRUNE_BATCH, items=True)):
            pass
