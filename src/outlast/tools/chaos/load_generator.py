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

from outlast.api.outlast import Outlast
from outlast.errors import StaleFence, StoreError, UnknownEffect, UnknownRun, WrongStatus
from outlast.store.protocol import Store
from outlast.store.rows import QueueRow, RunQuery
from outlast.tools.chaos.ledger_client import ask
from outlast.tools.chaos.work import Piece, Work

PAUSE = 0.1
LOOK_SECONDS = 0.5
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
        self._ledger = ledger
        self.decided = 0
        """How many effects the generator decided."""
        self.address, self.work, self._rate, self._under_way_max = (
            address,
            work,
            rate,
            under_way_max,
        )
        self.acknowledged: list[str] = []
        """Ids, as the store has them, of work that the store acknowledged as durable."""
        self.tried = 0
        """How many pieces were due for submission, acknowledged or not."""
        self.seen = Seen()
        self.away: str | None = None
        """Why the store did not answer the last time. None if it did."""
        self.held_back = 0.0
        """Seconds without submissions because too much work was in flight."""
        self.wrong: list[str] = []
        """Requests that were refused and should not have been."""
        self._unsure: list[Piece] = []
        """Submitted, but not acknowledged yet."""
        self._to_cancel: dict[str, float] = {}
        self._dice = random.Random(f"outlast chaos desk {work.seed}")  # noqa: S311 - reproducible
        self._began: float | None = None
        self._credit, self._credited = 0.0, 0.0
        self._last, self._looked = 0.0, 0.0
        """When the generator last submitted or cancelled anything, and when it last polled."""
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
                await self.round(app, app._open.store)
                await asyncio.sleep(PAUSE)

    def visit(self) -> None:
        """Open the store, do one round, and close it again."""

        async def once() -> None:
            async with _app(self.address) as app:
                self._looked = 0.0
                await self.round(app, app._open.store)

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
            and not self._to_cancel
            and not self.away
            and not self.seen.under_way
            and not (self.seen.parked and self._ledger)
            and self._looked > self._last
        )

    @property
    def unsure(self) -> int:
        """Return how many submissions were never acknowledged."""
        return len(self._unsure)

    async def round(self, app: Outlast, store: Store) -> None:
        try:
            await self._submit(app)
            await self._cancel(app)
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self.seen = await asyncio.to_thread(self._look, store)
                self._looked = time.monotonic()
                if self.seen.parked and self._ledger is not None:
                    await self._decide(app, store)
        except StoreError as error:
            self.away = str(error)
        else:
            self.away = None

    async def _submit(self, app: Outlast) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = self._credited = now
            self._credit = max(1.0, self._rate)
        if not self._closing:
            self._more(now)
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

    def _more(self, now: float) -> None:
        """Add the pieces that the rate allows, unless too much work is in flight."""
        passed, self._credited = now - self._credited, now
        if self.seen.under_way + len(self._unsure) >= self._under_way_max:
            self.held_back += passed
            return
        self._credit = min(self._credit + passed * self._rate, BATCH_MAX)
        count = int(self._credit)
        self._credit -= count
        self._unsure += [
            self.work.piece(number) for number in range(self.tried, self.tried + count)
        ]
        self.tried += count

    def _acknowledge(self, some: Iterable[Piece], prefix: str) -> None:
        now = self._last = time.monotonic()
        for piece in some:
            self._unsure.remove(piece)
            self.acknowledged.append(prefix + piece.id)
            if self.work.is_for_cancelling(piece.id):
                self._to_cancel[piece.id] = now + self._dice.uniform(*CANCEL_SECONDS)

    async def _cancel(self, app: Outlast) -> None:
        now = time.monotonic()
        for id in [id for id, due in self._to_cancel.items() if self._closing or due <= now]:
            try:
                await app.cancel(id, "chaos has had enough of it")
            except WrongStatus:
                # An earlier request was accepted, but its answer was lost.
                pass
            except UnknownRun as error:
                self.wrong.append(f"a run that was acknowledged cannot be cancelled: {error}")
            del self._to_cancel[id]
            self._last = time.monotonic()

    async def _decide(self, app: Outlast, store: Store) -> None:
        """Decide every open effect of the parked runs by the ledger, as a person would."""
        query = RunQuery(statuses=("parked",), queue=self.work.queue, limit=DECIDED_MAX)
        for row in await asyncio.to_thread(store.runs, query):
            for effect in await app.effects(row.id):
                if effect.state != "open":
                    continue
                # Ask under the run's last fence, so that an act of an older execution is too late
                # from now on.
                try:
                    done = await ask(
                        "asked", effect.key, self._ledger, run=row.id, fence=abs(row.fence)
                    )
                    said: dict[str, Any] = {"did_not": True} if done is None else {"happened": done}
                    await app.decide(row.id, effect.place, intent=effect.intent, **said)
                except (StaleFence, WrongStatus, UnknownEffect):
                    # The run continued in the meantime.
                    continue
                self.decided += 1
                self._last = time.monotonic()
                # Decide the next open effect when the run is parked again.
                break

    def _look(self, store: Store) -> Seen:
        mine = {self.work.queue, self.work.items}
        rows = [row for row in store.queues() if row.name in mine]
        seen = Seen(*(sum(getattr(row, name) for row in rows) for name in Seen._fields))
        return seen if seen.under_way else self._certain(store, rows, seen)

    def _certain(self, store: Store, rows: list[QueueRow], seen: Seen) -> Seen:
        """Add open runs that the queues' counts leave out, such as children."""
        open_ = ("queued", "running", "waiting")
        left = sum(
            len(store.runs(RunQuery(statuses=(status,), queue=row.name, limit=1)))
            for row in rows
            for status in open_
        )
        return seen._replace(running=seen.running + left)


def _app(address: str) -> Outlast:
    return Outlast(address, signals=0, http="", store_patience=PATIENCE)


def _batches(pieces: list[Piece]) -> Iterable[list[Piece]]:
    left = iter(list(pieces))
    while some := list(islice(left, BATCH_MAX)):
        yield some
