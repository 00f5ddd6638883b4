"""Decide when a claimer may claim a suspect: a run that may be what kills its workers."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from enum import Enum

from outlast.engine.isolation import Isolation
from outlast.engine.store_client import StoreClient

log = logging.getLogger("outlast.worker")

YIELD_PATIENCES = 6
"""How many times `suspect_patience` a suspect waits before it is claimed beside other work."""


class SuspectClaim(Enum):
    """How a claimer may claim a suspect now."""

    ALONE = "alone"
    BESIDE_OTHERS = "beside others"
    NOT_YET = "not yet"


class SuspectWait:
    """The wait of one claimer for a moment at which nothing else is held."""

    def __init__(
        self,
        claimer: object,
        isolation: Isolation,
        client: StoreClient,
        *,
        worker_id: Callable[[], str],
        patience: float,
        chance: random.Random,
    ) -> None:
        self._claimer = claimer
        self._isolation = isolation
        self._client = client
        self._worker_id = worker_id
        self._patience = patience
        self._chance = chance
        self._since: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether there is a suspect that could not be claimed yet."""
        return self._since is not None

    def end(self) -> None:
        """Note that the suspect was claimed, or is gone. Other work may be claimed again."""
        self._since = None
        self._isolation.stop_yielding(self._claimer)

    async def decide(self) -> SuspectClaim:
        """Return how a suspect may be claimed now. Yield to make room for it if necessary.

        If no worker becomes empty, the suspect is claimed beside other work in the end. A death in
        company counts against no run.
        """
        if self._isolation.is_active:
            return SuspectClaim.NOT_YET
        if self._isolation.is_empty():
            return SuspectClaim.ALONE
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now + self._chance.uniform(0.0, self._patience)
        waited = now - self._since
        if waited > self._patience * YIELD_PATIENCES:
            log.warning(
                "A run that died more than once without recording anything found no idle "
                "worker, so it executes beside other runs."
            )
            return SuspectClaim.BESIDE_OTHERS
        if not self._isolation.suspends_claims and await self._should_yield(
            patient=waited <= self._patience
        ):
            self._isolation.start_yielding(self._claimer)
        return SuspectClaim.NOT_YET

    async def _should_yield(self, *, patient: bool) -> bool:
        """Return whether this worker stops claiming to become empty for a suspect.

        At most a quarter of the busy workers do, those that hold the least. The others continue
        with other work. A patient worker leaves the suspect to an idle worker, if there is one.
        """
        own_id = self._worker_id()
        everybody = await self._client.read(self._client.store.workers)
        # A worker that only consumes items does not register what it claims, but it knows that it
        # claims.
        workers = [worker for worker in everybody if worker.concurrency or worker.id == own_id]
        busy = [worker for worker in workers if worker.held or worker.id == own_id]
        if patient and any(not worker.draining for worker in workers if worker not in busy):
            return False
        busy.sort(key=lambda worker: (worker.held, str(worker.id)))
        first = busy[: math.ceil(len(busy) / 4)]
        return any(worker.id == own_id for worker in first)
