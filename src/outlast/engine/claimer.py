"""Claim runs or items from queues while slots are free.

The claimer sleeps until the store notifies it, held work ends, or something comes due. It peeks
before it claims. A peek is a read, so a notification costs other processes nothing when there is
nothing to claim.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.claim_pacer import ClaimPacer
from outlast.engine.isolation import Isolation
from outlast.engine.log_backoff import LogBackoff
from outlast.engine.poison_suspects import SuspectClaim, SuspectWait
from outlast.engine.store_client import StoreClient
from outlast.engine.workflow_pauses import POLL_SHARE_MIN, WorkflowPauses
from outlast.errors import StoreError
from outlast.settings import Settings
from outlast.store.commands import Claim
from outlast.store.rows import Claimable, RunRow
from outlast.telemetry.error_text import redact

log = logging.getLogger("outlast.worker")

PEEK_SECONDS = 0.5
"""How long full claims may follow each other without a peek."""
PAUSE_SECONDS_MAX = 3600.0
SUSPECT_SECONDS = 0.2
"""Seconds between two rounds while a suspect waits for isolation."""
UNKNOWN_LOG_SECONDS = 60.0
"""Seconds between two log lines about runs of a workflow that this worker does not know."""

# Not the shared generator: a program may have seeded that.
_chance = random.Random()  # noqa: S311 - no secret

OVERDUE_ROUNDS, OVERDUE_SECONDS = 20, 0.2
"""After this many rounds without a claim, the seconds between two of them."""


class ClaimedWork(NamedTuple):
    """What a claimer claims, and who executes it."""

    queues: tuple[str, ...]
    workflows: Callable[[], tuple[str, ...]]
    """Returns the names of the workflows to claim."""
    begin: Callable[[list[RunRow]], Awaitable[None]]
    """Starts the claimed runs or items."""
    before_round: Callable[[], None] = lambda: None
    """Called before every round. What it enqueues is committed together with the claim."""
    pauses: WorkflowPauses | None = None
    """Which of the workflows are paused. Items have no workflow that could be."""


class Slots:
    """Count the slots that the claims of one claimer use."""

    __slots__ = ("_on_free", "returned", "used")

    def __init__(self, on_free: Callable[[], None]) -> None:
        self._on_free = on_free
        self.used = 0
        """Claims that have not ended, or have not freed their slot yet."""
        self.returned = 0
        """How many of them had been interrupted before."""

    def take_slot(self, *, returned: bool) -> None:
        """Count a claim. `returned` says whether it had been interrupted before."""
        self.used += 1
        self.returned += returned

    def free_slot(self, *, returned: bool) -> None:
        """Count the end of a claim, and wake the claimer."""
        self.used -= 1
        self.returned -= returned
        self._on_free()


class Claimer:
    """Keep the free slots of one worker, or of one consumer of items, filled."""

    # 18 attributes: four collaborators, the parts that pace, wait and count, and what the next
    # round of claims needs to know.

    def __init__(
        self,
        work: ClaimedWork,
        concurrency: int,
        *,
        acquirer: WorkAcquirer,
        isolation: Isolation,
        client: StoreClient,
        settings: Settings,
    ) -> None:
        self._work = work
        self._acquirer = acquirer
        self._isolation = isolation
        self._client = client
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self.slots = Slots(self._wake.set)
        self.pacer = ClaimPacer(
            concurrency,
            now=self._loop.time(),
            ramp=settings.ramp,
            new_share=settings.new_share,
            returned_rate=settings.returned_rate,
            chance=_chance,
        )
        self._suspects = SuspectWait(
            self,
            isolation,
            client,
            worker_id=lambda: acquirer.worker_id,
            patience=settings.suspect_patience,
            chance=_chance,
        )
        self._unknown = UnknownWorkflows()
        self._log_backoff = LogBackoff(self._loop.time)
        self._token = secrets.token_hex(8)
        """The token of the next claim, generated ahead of time.

        Generating it lets other threads in. The writer's thread would then commit what
        `before_round` has enqueued without the claim.
        """
        self._peek_at = 0.0
        self._more = False
        """Whether the last claim filled all slots: there is probably more, so no peek is needed."""
        self._overdue_rounds = 0
        """Rounds in a row that claimed nothing although something is overdue."""
        self._has_claimed = False
        self._stopped = False

    @property
    def queues(self) -> tuple[str, ...]:
        """Return the queues from which this claimer claims."""
        return self._work.queues

    def wake(self) -> None:
        """Start the next round now, because something may have changed."""
        self._wake.set()

    def stop(self) -> None:
        """Stop claiming."""
        self._stopped = True
        self._isolation.stop_yielding(self)
        self._wake.set()

    async def work(self) -> None:
        """Claim in rounds until the claimer is stopped. Log failures and continue."""
        while not self._stopped:
            self._wake.clear()
            self._work.before_round()
            try:
                pause = await self._round()
                self._log_backoff.reset()
            except StoreError as error:
                if self._log_backoff.should_log():
                    log.warning("Could not claim runs: %s", error)
                pause = min(1.0, self._settings.poll)
            except Exception as error:
                # A bug of ours. A worker that stopped claiming would be worse.
                log.error(
                    "Failed to claim runs. The worker tries again.",
                    exc_info=redact(error, self._settings.log_values),
                )
                pause = self._settings.poll
            if pause > 0 and not self._stopped:
                # `wait_for` would create a task for every claim.
                later = self._loop.call_later(min(pause, PAUSE_SECONDS_MAX), self._wake.set)
                await self._wake.wait()
                later.cancel()

    async def _round(self) -> float:
        """Peek, claim what fits, and return the seconds until the next round."""
        now = self._loop.time()
        if self._work.pauses is not None:
            await self._work.pauses.refresh(now)
            if self._work.workflows() and not self._workflows():
                # Without workflows, a claim would take the runs of any.
                self._suspects.end()
                self._more = False
                return self._pause(None)
        limit, returned, new_first = self.pacer.allow(now, self.slots.used, self.slots.returned)
        if not self._more or now >= self._peek_at:
            self._peek_at = now + PEEK_SECONDS
            claimable = await self._peek()
            known = self._work.workflows()
            self._unknown.log(tuple(name for name in claimable.unknown if name not in known))
            # Runs that came due while no worker was alive are not sorted yet. A suspect among them
            # is claimed first, while nothing is held.
            if claimable.suspect or (
                claimable.overdue and not self._has_claimed and self._isolation.is_empty()
            ):
                await self._claim_suspect()
            else:
                self._suspects.end()
            if not claimable.ready:
                self._more = False
                return self._pause(claimable)
        if limit == 0 or self._isolation.suspends_claims or self._stopped:
            return self._pause(None)
        claimed = len(await self._claim(limit, 0 if new_first else returned))
        if claimed < limit and new_first and returned:
            claimed += len(await self._claim(limit - claimed, min(returned, limit - claimed)))
        self._more = claimed == limit
        if self._more:
            # All slots are taken, unless the claimed runs have opened others.
            more = self.slots.used < self.pacer.open(self._loop.time())
            return 0.0 if more else self._pause(None)
        # Nothing more can be claimed until a notification arrives or something comes due. Peek
        # again for the due time: the claim has made ready what was due.
        claimable = await self._peek()
        self._overdue_rounds = self._overdue_rounds + 1 if claimable.overdue and not claimed else 0
        # Each claim makes some overdue work ready, unless another program keeps it locked.
        if claimable.overdue:
            return 0.0 if self._overdue_rounds < OVERDUE_ROUNDS else OVERDUE_SECONDS
        return self._pause(claimable)

    async def _peek(self) -> Claimable:
        return await self._client.read(
            self._client.store.peek, self._work.queues, self._workflows()
        )

    def _workflows(self) -> tuple[str, ...]:
        """Return the workflows whose runs may be claimed."""
        known = self._work.workflows()
        return known if self._work.pauses is None else self._work.pauses.without_paused(known)

    def _pause(self, claimable: Claimable | None) -> float:
        pauses = [self._settings.poll * _chance.uniform(POLL_SHARE_MIN, 1.0)]
        if claimable is not None and claimable.next_due is not None:
            pauses.append(max(0.0, claimable.next_due - self._client.store.now()) + 0.001)
        now = self._loop.time()
        if self._work.pauses is not None:
            pauses.append(self._work.pauses.seconds_left(now))
        more_in = self.pacer.more_in(now)
        if more_in is not None:
            pauses.append(more_in)
        if self._suspects.is_waiting:
            pauses.append(SUSPECT_SECONDS)
        return min(pauses)

    async def _claim(
        self, limit: int, returned: int, *, suspects: bool = False, alone: bool = False
    ) -> list[RunRow]:
        queues, workflows = self._work.queues, self._workflows()
        command = Claim(
            self._acquirer.worker_id, self._token, (), queues, workflows, limit, returned, suspects
        )
        try:
            rows = await self._acquirer.claim(command, alone=alone, slot=self.slots)
        finally:
            self._token = secrets.token_hex(8)
            self._has_claimed = True
        if rows:
            again = [row for row in rows if row.interrupted is not None]
            self.pacer.took(len(again), died=any(row.deaths for row in again))
            await self._work.begin(rows)
        return rows

    async def _claim_suspect(self) -> None:
        """Claim a suspect, if it may be claimed now."""
        if self._stopped:
            return
        how = await self._suspects.decide()
        if how is not SuspectClaim.NOT_YET:
            await self._claim(1, 1, suspects=True, alone=how is SuspectClaim.ALONE)
            self._suspects.end()


class UnknownWorkflows:
    """Log that runs wait for a worker that knows their workflow, once a minute per workflow."""

    def __init__(self) -> None:
        self._next_log: dict[str, float] = {}

    def log(self, workflows: tuple[str, ...]) -> None:
        """Log these workflows, unless they were logged within the last minute."""
        now = time.monotonic()
        for name in workflows:
            if now >= self._next_log.get(name, 0.0):
                self._next_log[name] = now + UNKNOWN_LOG_SECONDS
                log.warning(
                    "Runs of workflow %s wait for a worker that knows it. Start one that imports "
                    "its module.",
                    name,
                    extra={"workflow": name},
                )
