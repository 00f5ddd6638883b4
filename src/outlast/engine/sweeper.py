"""Find dead workers and make their runs available to others. Also tidy up after this worker.

Every process that claims has a sweeper. Concurrent sweeps are harmless: the second one finds
nothing left.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform
from typing import TYPE_CHECKING

from outlast.engine.log_backoff import LogBackoff
from outlast.engine.sessions import prune_sessions
from outlast.errors import StoreBroken, StoreError
from outlast.store.commands import Prune, RecordDurations, Release, SetWaiting, Sweep, Swept

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast.worker")

PRUNE_BATCH = 1_000
SESSIONS_SECONDS = 60.0
"""Seconds between two searches for expired sessions."""


class Sweeper:
    """Sweep and tidy at intervals."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._peers = 1
        """Number of workers, including this one."""
        self._acked_at: float | None = None
        """When an item was last acked here, by the store's clock. None if all of them are pruned.

        The store keeps acked items for `item_memory` seconds.
        """
        self._log_backoff = LogBackoff(engine.loop.time)
        self.lost: asyncio.Future[StoreBroken] = engine.loop.create_future()
        """Done, with the error, when this process has lost its store for good."""

    def item_acked(self) -> None:
        """Note that there will be acked items to prune."""
        self._acked_at = self._engine.store.now()

    async def work(self) -> None:
        """Sweep until the engine closes. Log failures and continue."""
        engine = self._engine
        tidy_at = sessions_at = engine.loop.time() + engine.settings.poll
        while not engine.shutdown.closing:
            try:
                await self.sweep()
                if engine.loop.time() >= tidy_at:
                    await self.tidy()
                    self._peers = len(await engine.read(engine.store.workers))
                    await self._forget_acked()
                    await self._tell_durations()
                    tidy_at = engine.loop.time() + engine.settings.poll
                if engine.loop.time() >= sessions_at:
                    await prune_sessions(engine.store, engine.writer, PRUNE_BATCH)
                    sessions_at = engine.loop.time() + SESSIONS_SECONDS
            except Exception as error:
                if self._log_backoff.should_log():
                    self._complain(error)
                if isinstance(error, StoreBroken) and error.gone and not self.lost.done():
                    self.lost.set_result(error)
            else:
                self._log_backoff.reset()
            await asyncio.sleep(self._pause())

    def _complain(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.warning("cannot look for dead workers: %s", error)
        else:
            log.error("a sweep failed", exc_info=self._engine.redact_exception(error))

    def _pause(self) -> float:
        """Return the seconds until the next sweep.

        Together, many workers sweep as often as two would, so the load on the store does not grow
        with the fleet. The first to find a dead worker sweeps it for all.
        """
        heartbeat, crowd = self._engine.settings.heartbeat, self._peers / 2
        if crowd <= 1:
            return heartbeat
        # The jitter is no secret.
        return min(heartbeat * crowd * uniform(0.5, 1.5), self._engine.settings.lease / 4)  # noqa: S311

    async def sweep(self) -> bool:
        """Sweep dead workers, and return whether there were any."""
        engine = self._engine
        if not await engine.read(engine.store.dead_workers):
            return False
        settings = engine.settings
        swept: Swept = await engine.writer.execute(
            Sweep(settings.death_backoff, settings.death_backoff_max)
        )
        if swept.workers:
            engine.meters.died(len(swept.workers))
            found = (len(swept.workers), len(swept.runs), len(swept.dead))
            facts = {"workers": list(swept.workers)}
            # For a program that is not a worker, this is routine.
            say = log.warning if engine.claimer is not None else log.info
            say("dead workers: %d; runs taken from them: %d; dead letters: %d", *found, extra=facts)
        for id in swept.dead:
            engine.hooks.tell("dead", id)
        return bool(swept.workers)

    async def tidy(self) -> None:
        """Release runs that the store assigns to this worker although it does not hold them.

        Their claim was never answered, or the store did not take their end.
        """
        engine = self._engine
        held = await engine.read(engine.store.held, engine.worker.id)
        if all(engine.in_flight.is_held(fence) for _, fence, _ in held):
            return
        # The writer answers commands in order. Once this no-op is answered, so is every claim that
        # was committed before the read, and its runs are held.
        await engine.writer.execute(SetWaiting(0, 0, ()))
        for run, fence, _ in held:
            if not engine.in_flight.is_held(fence):
                await engine.writer.execute(
                    Release(run, fence, "nobody had it in hand", interrupted=False)
                )

    async def _tell_durations(self) -> None:
        """Record how long steps took, for the drains of other workers."""
        samples = self._engine.services.steps.durations.fresh()
        if samples:
            await self._engine.writer.execute(RecordDurations(samples))

    async def _forget_acked(self) -> None:
        """Prune acked items that are older than `item_memory`, if any were acked here."""
        engine = self._engine
        if self._acked_at is None:
            return
        before = engine.store.now() - engine.settings.item_memory
        if before > self._acked_at:
            self._acked_at = None
        # A short batch may only mean that time ran out.
        while await engine.writer.execute(Prune(before, PRUNE_BATCH, items=True)):
            pass
