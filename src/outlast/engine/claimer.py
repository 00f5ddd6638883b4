"""Claim runs or items from queues while slots are free.

The claimer sleeps until the store notifies it, held work ends, or something comes due. It peeks
before it claims. A peek is a read, so a notification costs other processes nothing when there is
nothing to claim.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from outlast.engine.claim_pacer import ClaimPacer
from outlast.engine.log_backoff import LogBackoff
from outlast.errors import StoreError
from outlast.store.commands import Claim
from outlast.store.rows import Claimable, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast.worker")

LOOK_SECONDS = 0.5
"""How long full claims may follow each other without a peek."""

YIELD_PATIENCES = 6
"""How many times `suspect_patience` a suspect waits before it is claimed beside other work."""

# Not the shared generator: a program may have seeded that.
_chance = random.Random()  # noqa: S311 - no secret

OVERDUE_ROUNDS, OVERDUE_SECONDS = 20, 0.2
"""After this many rounds without a claim, the seconds between two of them."""


class Claimer:
    """Keep the free slots of one worker, or of one consumer of items, filled."""

    def __init__(
        self,
        engine: Engine,
        queues: tuple[str, ...],
        known: Callable[[], tuple[str, ...]],
        concurrency: int,
        begin: Callable[[list[RunRow]], Awaitable[None]],
        first: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self.queues, self._known, self._begin = engine, queues, known, begin
        self._first = first
        """Called before every round. What it enqueues is committed together with the claim."""
        self._log_backoff = LogBackoff(engine.loop.time)
        self._overdue_rounds = 0
        """Rounds in a row that claimed nothing although something is overdue."""
        settings = engine.settings
        self.pacer = ClaimPacer(
            concurrency,
            now=engine.loop.time(),
            ramp=settings.ramp,
            new_share=settings.new_share,
            returned_rate=settings.returned_rate,
            chance=_chance,
        )
        self.slots_used = 0
        """Claims that have not ended, or have not freed their slot yet."""
        self._slots_returned = 0
        """How many of them had been interrupted before."""
        self._token = secrets.token_hex(8)
        """The token of the next claim, generated ahead of time.

        Generating it lets other threads in. The writer's thread would then commit what `first` has
        enqueued without the claim.
        """
        self._wake = asyncio.Event()
        self._look_at = 0.0
        self._more = False
        """Whether the last claim filled all slots: there is probably more, so no peek is needed."""
        self._stopped = False
        self._suspect_since: float | None = None
        self._has_claimed = False
        self._reported: dict[str, float] = {}

    def wake(self) -> None:
        """Start the next round now, because something may have changed."""
        self._wake.set()

    def stop(self) -> None:
        """Stop claiming."""
        self._stopped = True
        self._engine.isolation.stop_yielding(self)
        self._wake.set()

    def take_slot(self, *, returned: bool) -> None:
        """Count a claim. `returned` says whether it had been interrupted before."""
        self.slots_used += 1
        self._slots_returned += returned

    def free_slot(self, *, returned: bool) -> None:
        """Count the end of a claim, and claim more."""
        self.slots_used -= 1
        self._slots_returned -= returned
        self._wake.set()

    async def work(self) -> None:
        """Claim in rounds until the claimer is stopped. Log failures and continue."""
        while not self._stopped:
            self._wake.clear()
            self._first()
            try:
                pause = await self._round()
                self._log_backoff.reset()
            except StoreError as error:
                if self._log_backoff.should_log():
                    log.warning("cannot claim: %s", error)
                pause = min(1.0, self._engine.settings.poll)
            except Exception as error:
                # A bug of ours. A worker that stopped claiming would be worse.
                log.error(
                    "a round of claiming failed", exc_info=self._engine.redact_exception(error)
                )
                pause = self._engine.settings.poll
            if pause > 0 and not self._stopped:
                # `wait_for` would create a task for every claim.
                later = self._engine.loop.call_later(min(pause, 3600.0), self._wake.set)
                await self._wake.wait()
                later.cancel()

    async def _round(self) -> float:
        """Peek, claim what fits, and return the seconds until the next round."""
        engine, now = self._engine, self._engine.loop.time()
        limit, returned, new_first = self.pacer.allow(now, self.slots_used, self._slots_returned)
        if not self._more or now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            claimable = await engine.read(engine.store.peek, self.queues, self._known())
            self._report(claimable.unknown)
            # What came due while no worker was alive is not sorted yet. A suspect among it goes
            # first, while nothing is held.
            if claimable.suspect or (
                claimable.overdue and not self._has_claimed and engine.in_flight.is_empty()
            ):
                await self._suspect()
            else:
                self._no_suspect()
            if not claimable.ready:
                self._more = False
                return self._pause(claimable)
        if limit == 0 or engine.isolation.suspends_claims or self._stopped:
            return self._pause(None)
        claimed = len(await self._claim(limit, 0 if new_first else returned))
        if claimed < limit and new_first and returned:
            claimed += len(await self._claim(limit - claimed, min(returned, limit - claimed)))
        self._more = claimed == limit
        if self._more:
            # All slots are taken, unless the claimed runs have opened others.
            more = self.slots_used < self.pacer.open(engine.loop.time())
            return 0.0 if more else self._pause(None)
        # Nothing more can be claimed until a notification arrives or something comes due. Peek
        # again for the due time: the claim has made ready what was due.
        claimable = await engine.read(engine.store.peek, self.queues, self._known())
        self._overdue_rounds = self._overdue_rounds + 1 if claimable.overdue and not claimed else 0
        # Each claim makes some overdue work ready, unless another program keeps it locked.
        if claimable.overdue:
            return 0.0 if self._overdue_rounds < OVERDUE_ROUNDS else OVERDUE_SECONDS
        return self._pause(claimable)

    def _pause(self, claimable: Claimable | None) -> float:
        engine = self._engine
        pauses = [engine.settings.poll * _chance.uniform(0.75, 1.0)]
        if claimable is not None and claimable.next_due is not None:
            pauses.append(max(0.0, claimable.next_due - engine.store.now()) + 0.001)
        more_in = self.pacer.more_in(engine.loop.time())
        if more_in is not None:
            pauses.append(more_in)
        if self._suspect_since is not None:
            pauses.append(0.2)
        return min(pauses)

    async def _claim(
        self, limit: int, returned: int, *, suspects: bool = False, alone: bool = False
    ) -> list[RunRow]:
        engine = self._engine
        command = Claim(
            engine.worker.id, self._token, (), self.queues, self._known(), limit, returned, suspects
        )
        try:
            rows = await engine.acquirer.claim(command, alone=alone, slot=self)
        finally:
            self._token = secrets.token_hex(8)
            self._has_claimed = True
        if rows:
            again = [row for row in rows if row.interrupted is not None]
            self.pacer.took(len(again), died=any(row.deaths for row in again))
            await self._begin(rows)
        return rows

    async def _suspect(self) -> None:
        """Claim a suspect while nothing else is held, or yield to make that possible.

        If no worker becomes empty, the suspect is claimed beside other work in the end. A death in
        company counts against no run.
        """
        engine, now = self._engine, self._engine.loop.time()
        isolation, patience = engine.isolation, engine.settings.suspect_patience
        if self._stopped or isolation.is_active:
            return
        if engine.in_flight.is_empty():
            await self._claim(1, 1, suspects=True, alone=True)
            self._no_suspect()
            return
        if self._suspect_since is None:
            self._suspect_since = now + _chance.uniform(0.0, patience)
        waited = now - self._suspect_since
        if waited > patience * YIELD_PATIENCES:
            log.warning(
                "a run that died more than once without recording anything waits for an idle worker in vain"
            )
            await self._claim(1, 1, suspects=True)
            self._no_suspect()
        elif not isolation.suspends_claims and await self._should_yield(patient=waited <= patience):
            isolation.start_yielding(self)

    def _no_suspect(self) -> None:
        self._suspect_since = None
        self._engine.isolation.stop_yielding(self)

    async def _should_yield(self, *, patient: bool) -> bool:
        """Return whether this worker stops claiming to become empty for a suspect.

        At most a quarter of the busy workers do, those that hold the least. The others continue
        with other work. A patient worker leaves the suspect to an idle worker, if there is one.
        """
        engine = self._engine
        everybody = await engine.read(engine.store.workers)
        # A worker that only consumes items does not register what it claims, but it knows that it
        # claims.
        workers = [
            worker for worker in everybody if worker.concurrency or worker.id == engine.worker.id
        ]
        busy = [worker for worker in workers if worker.held or worker.id == engine.worker.id]
        if patient and any(not worker.draining for worker in workers if worker not in busy):
            return False
        busy.sort(key=lambda worker: (worker.held, str(worker.id)))
        first = busy[: math.ceil(len(busy) / 4)]
        return any(worker.id == engine.worker.id for worker in first)

    def _report(self, unknown: tuple[str, ...]) -> None:
        """Log, once a minute per workflow, that its runs wait for a worker that knows it."""
        now = time.monotonic()
        for name in unknown:
            if now >= self._reported.get(name, 0.0):
                self._reported[name] = now + 60.0
                log.warning(
                    "runs of workflow %s wait for a worker that knows it",
                    name,
                    extra={"workflow": name},
                )
