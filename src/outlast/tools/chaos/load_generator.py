"""Submit work at a rate, cancel runs that never end, and poll the queues.

The load generator repeats submissions that were not acknowledged, under the same ids.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.engine.inspection import EffectInfo
from outlast.errors import StaleFence, StoreError, UnknownEffect, UnknownRun, WrongStatus
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow, RunQuery, RunRow
from outlast.tools.chaos.ledger_client import ask
from outlast.tools.chaos.work import Piece, Work

PAUSE = 0.1
POLL_SECONDS = 0.5
BATCH_MAX = 200
DECIDED_MAX = 20
CANCEL_SECONDS = (0.5, 4.0)
"""How long after its submission a run that never ends is cancelled."""
PATIENCE = 1.0
"""How long one try lasts while the store is unavailable. The generator then tries again."""


class Seen(NamedTuple):
    """The queues' counts at the last poll."""

    queued: int = 0
    running: int = 0
    waiting: int = 0
    parked: int = 0
    dead: int = 0

    @property
    def under_way(self) -> int:
        return self.queued + self.running + self.waiting


class SubmissionRate:
    """Decide which pieces are due: a number per second, unless too much work is in flight."""

    def __init__(self, rate: float, under_way_max: int) -> None:
        self._rate = rate
        self._under_way_max = under_way_max
        self._credit = max(1.0, rate)
        self._credited: float | None = None
        """When the credit was last increased. None before the first call."""
        self.tried = 0
        """How many pieces were due for submission, acknowledged or not."""
        self.held_back = 0.0
        """Seconds without submissions because too much work was in flight."""

    def due(self, now: float, under_way: int) -> range:
        """Return the numbers of the pieces that are due, and count them as tried."""
        passed = 0.0 if self._credited is None else now - self._credited
        self._credited = now
        if under_way >= self._under_way_max:
            self.held_back += passed
            return range(0)
        self._credit = min(self._credit + passed * self._rate, BATCH_MAX)
        count = int(self._credit)
        self._credit -= count
        self.tried += count
        return range(self.tried - count, self.tried)


class Cancellations:
    """Cancel runs that never end, each at a random time after its submission."""

    def __init__(self, seed: int) -> None:
        self.due: dict[str, float] = {}
        """When each run is cancelled, by id."""
        self.wrong: list[str] = []
        """Requests that were refused and should not have been."""
        self._dice = random.Random(f"outlast chaos desk {seed}")  # noqa: S311 - reproducible

    def schedule(self, id: str, now: float) -> None:
        self.due[id] = now + self._dice.uniform(*CANCEL_SECONDS)

    async def cancel(self, app: Outlast, *, all_of_them: bool) -> bool:
        """Cancel the runs that are due, or all of them. Return whether there were any."""
        now = time.monotonic()
        chosen = [id for id, due in self.due.items() if all_of_them or due <= now]
        for id in chosen:
            try:
                await app.cancel(id, "chaos cancelled it")
            except WrongStatus:
                # An earlier request was accepted, but its answer was lost.
                pass
            except UnknownRun as error:
                self.wrong.append(f"a run that was acknowledged cannot be cancelled: {error}")
            del self.due[id]
        return bool(chosen)


class Decisions:
    """Decide the open effects of parked runs by the ledger, as a person would."""

    def __init__(self, ledger: int, queue: str) -> None:
        """Prepare. `ledger` is the port of the ledger."""
        self._ledger = ledger
        self._queue = queue
        self.count = 0

    async def decide(self, app: Outlast, store: Store) -> bool:
        """Decide one effect of each parked run. Return whether any was decided."""
        before = self.count
        query = RunQuery(statuses=("parked",), queue=self._queue, limit=DECIDED_MAX)
        for row in await asyncio.to_thread(store.runs, query):
            # The next open effect is decided when the run is parked again.
            for effect in await app.effects(row.id):
                if effect.state == "open" and await self._decide(app, row, effect):
                    self.count += 1
                    break
        return self.count > before

    async def _decide(self, app: Outlast, row: RunRow, effect: EffectInfo) -> bool:
        """Decide one effect. Return False if the run has continued in the meantime."""
        try:
            # Ask under the run's last fence, so that an act of an older execution is too late from
            # now on.
            done = await ask("asked", effect.key, self._ledger, run=row.id, fence=abs(row.fence))
            facts: dict[str, Any] = {"did_not": True} if done is None else {"happened": done}
            await app.decide(row.id, effect.place, intent=effect.intent, **facts)
        except (StaleFence, WrongStatus, UnknownEffect):
            return False
        return True


class LoadGenerator:
    """Do everything that is due in each `round`.

    `start` runs the rounds in a thread. Without it, a caller that may open the store calls `visit`.
    """

    def __init__(
        self,
        address: str,
        work: Work,
        *,
        rate: float,
        under_way_max: int,
        ledger: int | None = None,
    ) -> None:
        """Prepare the load.

        With `ledger`, the port of the ledger, the generator decides the effects of parked runs as a
        person would.
        """
        self.address = address
        self.work = work
        self.rate = SubmissionRate(rate, under_way_max)
        self.cancellations = Cancellations(work.seed)
        self.decisions = None if ledger is None else Decisions(ledger, work.queue)
        self.acknowledged: list[str] = []
        """Ids, as the store has them, of work that the store acknowledged as durable."""
        self.seen = Seen()
        self.away: str | None = None
        """Why the store did not answer the last time. None if it did."""
        self._unsure: list[Piece] = []
        """Submitted, but not acknowledged yet."""
        self._last_change = 0.0
        """When the generator last submitted, cancelled or decided anything."""
        self._polled = 0.0
        """When it last polled the queues."""
        self._closing = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.failure: BaseException | None = None

    # -- its thread

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="chaos desk", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 30.0) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        try:
            asyncio.run(self._rounds())
        # The experiment's thread reports the failure.
        except BaseException as error:
            self.failure = error

    async def _rounds(self) -> None:
        async with _app(self.address) as app:
            while not self._stop.is_set():
                await self.round(app, internals(app).engine.store)
                await asyncio.sleep(PAUSE)

    def visit(self) -> None:
        """Open the store, do one round, and close it again."""

        async def once() -> None:
            async with _app(self.address) as app:
                self._polled = 0.0
                await self.round(app, internals(app).engine.store)

        asyncio.run(once())

    # -- its work

    def close(self) -> None:
        """Submit nothing new, and cancel runs that never end now."""
        # Set nothing else: the thread may be acknowledging work at this moment.
        self._closing = True

    @property
    def idle(self) -> bool:
        """Return whether no work is left.

        Nothing is to be submitted, cancelled or acknowledged, and nothing is in flight.
        """
        return (
            self._closing
            and not self._unsure
            and not self.cancellations.due
            and not self.away
            and not self.seen.under_way
            and not (self.seen.parked and self.decisions)
            and self._polled > self._last_change
        )

    @property
    def unsure(self) -> int:
        """Return how many submissions were never acknowledged."""
        return len(self._unsure)

    async def round(self, app: Outlast, store: Store) -> None:
        try:
            await self._submit(app)
            await self.cancel_due(app)
            if time.monotonic() - self._polled > POLL_SECONDS:
                self.seen = await asyncio.to_thread(self._poll, store)
                self._polled = time.monotonic()
                if (
                    self.seen.parked
                    and self.decisions is not None
                    and await self.decisions.decide(app, store)
                ):
                    self._last_change = time.monotonic()
        except StoreError as error:
            self.away = str(error)
        else:
            self.away = None

    async def cancel_due(self, app: Outlast) -> None:
        if await self.cancellations.cancel(app, all_of_them=self._closing):
            self._last_change = time.monotonic()

    async def _submit(self, app: Outlast) -> None:
        if not self._closing:
            under_way = self.seen.under_way + len(self._unsure)
            numbers = self.rate.due(time.monotonic(), under_way)
            self._unsure += [self.work.piece(number) for number in numbers]
        runs = [piece for piece in self._unsure if piece.call is not None]
        items = [piece for piece in self._unsure if piece.call is None]
        for some in _batches(runs):
            calls = [piece.call.again() for piece in some if piece.call is not None]
            await app.submit_many(calls, ids=[piece.id for piece in some], queue=self.work.queue)
            self._acknowledge(some, "")
        for some in _batches(items):
            assert self.work.items is not None
            await app.queue(self.work.items).put_many(
                [piece.payload for piece in some], ids=[piece.id for piece in some]
            )
            self._acknowledge(some, f"{self.work.items}/")

    def _acknowledge(self, some: Iterable[Piece], prefix: str) -> None:
        now = self._last_change = time.monotonic()
        for piece in some:
            self._unsure.remove(piece)
            self.acknowledged.append(prefix + piece.id)
            if self.work.is_for_cancelling(piece.id):
                self.cancellations.schedule(piece.id, now)

    def _poll(self, store: Store) -> Seen:
        mine = {self.work.queue, self.work.items}
        rows = [row for row in store.queues() if row.name in mine]
        seen = Seen(*(sum(getattr(row, name) for row in rows) for name in Seen._fields))
        return seen if seen.under_way else _with_children(store, rows, seen)


def _with_children(store: Store, rows: list[QueueRow], seen: Seen) -> Seen:
    """Add open runs that the queues' counts leave out, such as children."""
    left = sum(
        len(store.runs(RunQuery(statuses=(status,), queue=row.name, limit=1)))
        for row in rows
        for status in ("queued", "running", "waiting")
    )
    return seen._replace(running=seen.running + left)


def _app(address: str) -> Outlast:
    return Outlast(address, signals=0, http="", store_patience=PATIENCE)


def _batches(pieces: list[Piece]) -> Iterable[list[Piece]]:
    left = iter(list(pieces))
    while some := list(islice(left, BATCH_MAX)):
        yield some
