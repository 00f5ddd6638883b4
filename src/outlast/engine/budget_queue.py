"""Reserve and settle the uses of one budget by one process, in batches.

One task applies what the steps ask for to the budget's state and writes it once. It repeats the
batch if another process has written meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from decimal import Decimal
from typing import NamedTuple

from outlast.codec.cost import NOTHING, Cost
from outlast.engine.background import Background
from outlast.engine.budget_state import BudgetState, Limits, Verdict, holder_of
from outlast.engine.budget_store import BudgetId, Found, question, read_budget, write_budget
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreUnavailable
from outlast.store.protocol import Store

HOLDERS_MAX = 100
"""Above how many reservations a write looks for those of executions that have ended."""

log = logging.getLogger("outlast")


class Reservation:
    """One use that asks for a part of the budget."""

    __slots__ = ("amounts", "enclosing", "id", "lacks", "limits", "question")

    def __init__(self, id: str, amounts: Cost, limits: Limits, enclosing: Collection[str]) -> None:
        self.id = id
        self.amounts = amounts
        self.limits = limits
        self.enclosing = enclosing
        """The ids of the uses around it."""
        self.question = ""
        """What a person is asked, if the budget is exhausted."""
        self.lacks: list[str] = []
        """The names of the limits that are too low."""


class _Question(NamedTuple):
    use: Reservation
    only_checks: bool
    answer: asyncio.Future[Verdict]


class _Settlement(NamedTuple):
    id: str
    amounts: Cost
    written: asyncio.Future[None]


class BudgetQueue:
    """The uses of one budget in this process."""

    def __init__(
        self,
        budget: BudgetId,
        client: StoreClient,
        background: Background,
        unwritten: set[BudgetQueue] | None = None,
    ) -> None:
        self.budget = budget
        self.left: dict[str, Decimal] = {}
        """What was left when this process last read or wrote the budget."""
        self._client = client
        self._background = background
        self._unwritten = set() if unwritten is None else unwritten
        """Keeps this queue while its settlements could not be written."""
        self._asked: list[_Question] = []
        self._exhausted: dict[str, Reservation] = {}
        """The uses of this process that wait until the budget is raised, by id."""
        self._settled: list[_Settlement] = []
        """They stay here until they are written, even while the store is unavailable."""
        self._limits: Limits = {}
        """The limits of the last use."""
        self._known: Found | None = None
        """What this process has written last."""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        """Set when a use of this process has settled."""
        self._is_closed = False

    async def reserve(self, use: Reservation) -> Verdict:
        """Ask once whether a use may begin. If it may, its amounts are reserved.

        If the budget is exhausted, the question of its run is recorded. It stays at least until
        `forget` is called.
        """
        try:
            return await self._ask(use, only_checks=False)
        except GeneratorExit:
            # The loop is gone.
            raise
        except BaseException:
            # It may have been reserved.
            self.forget(use)
            self.settle(use.id, NOTHING)
            raise

    async def check(self, use: Reservation) -> Verdict:
        """Ask once whether a use might begin, without reserving anything. See `reserve`.

        If it might, the question of its run stays until the next reservation.
        """
        return await self._ask(use, only_checks=True)

    async def _ask(self, use: Reservation, *, only_checks: bool) -> Verdict:
        if self._is_closed:
            raise StoreUnavailable("Outlast was closed before a use of a budget was reserved.")
        self._limits = use.limits
        question = _Question(use, only_checks, self._background.loop.create_future())
        self._asked.append(question)
        self._work()
        return await question.answer

    def forget(self, use: Reservation) -> None:
        """Note that a use no longer waits. Its run may be parked, so its question stays."""
        self._exhausted.pop(use.id, None)

    def settle(self, id: str, amounts: Cost) -> asyncio.Future[None]:
        """Count what a use has spent instead of what it reserved. Done when that is written.

        It is written with other changes. If this process dies before, the reservation counts.
        """
        written: asyncio.Future[None] = self._background.loop.create_future()
        if self._is_closed:
            written.set_exception(StoreUnavailable("Outlast was closed before a use was settled."))
            # Mark the exception as retrieved, in case nothing waits for it.
            written.exception()
            return written
        self._settled.append(_Settlement(id, amounts, written))
        self._work()
        return written

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until a use of this process has settled, but at most this many seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- the task

    def _work(self) -> None:
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = self._background.spawn(self._serve())
            self._task.add_done_callback(self._served)

    async def _serve(self) -> None:
        """Write until nothing is to be written."""
        try:
            while self._asked or self._settled:
                await self._write()
        except Exception as error:
            self._fail(error)

    def _served(self, task: asyncio.Task[None]) -> None:
        """Close the queue if its task was cancelled, maybe before its first turn."""
        if task.cancelled():
            self._is_closed = True
            self._fail(StoreUnavailable("Outlast was closed while a use of a budget waited."))

    def _fail(self, error: Exception) -> None:
        """Raise an error in all uses that wait. What has settled is written with the next use."""
        self._known = None
        if self._settled:
            self._unwritten.add(self)
        asked, self._asked = self._asked, []
        for one in asked:
            if not one.answer.done():
                one.answer.set_exception(error)
        for settlement in self._settled:
            if not settlement.written.done():
                settlement.written.set_exception(error)
                # Mark the exception as retrieved, in case nothing waits for it.
                settlement.written.exception()

    async def _write(self) -> None:
        """Apply all requests, write the state, and answer."""
        found = self._known
        while True:
            asked, settled = list(self._asked), list(self._settled)
            self._known = None
            is_fresh = found is None
            found = found or await self._read()
            state = found.state
            before = state.text()
            for settlement in settled:
                state.settle(settlement.id, settlement.amounts)
            verdicts = await self._place(state, asked)
            if state.text() != before:
                version = await write_budget(self._client, self.budget.id, found)
                if version is not None:
                    found = Found.of(version, state)
                    break
            elif is_fresh:
                break
            # Another process has written, or may have written, the state first.
            found = None
        self._known = found
        self.left = state.left
        del self._settled[: len(settled)]
        self._unwritten.discard(self)
        if settled:
            self._changed.set()
        for settlement in settled:
            if not settlement.written.done():
                settlement.written.set_result(None)
        del self._asked[: len(asked)]
        for one, verdict in zip(asked, verdicts, strict=True):
            if not one.answer.done():
                one.answer.set_result(verdict)

    async def _read(self) -> Found:
        return await read_budget(self._client, self.budget, self._limits)

    async def _place(self, state: BudgetState, asked: list[_Question]) -> list[Verdict]:
        """Reserve what fits, and note what runs must ask. Return what becomes of each use."""
        verdicts = _reserve(state, asked)
        if Verdict.BUSY in verdicts or len(state.held) > HOLDERS_MAX:
            ended = await self._client.read(_ended, self._client.store, state.holders())
            for run, fence in ended:
                state.count_orphans(run, fence)
            if ended:
                verdicts = _reserve(state, asked)
        # A question that nothing waits for says nothing: its run may have been parked.
        asking: dict[tuple[str, int], Reservation | None] = {}
        for (use, only_checks, answer), verdict in zip(asked, verdicts, strict=True):
            if answer.done():
                continue
            holder = holder_of(use.id)
            if verdict is Verdict.EXHAUSTED:
                self._exhausted[use.id] = use
                asking[holder] = use
            elif not only_checks:
                self._exhausted.pop(use.id, None)
                asking.setdefault(holder, None)
            # A check that finds room withdraws nothing: its run may be parked before the use
            # learns of it, and is then resumed because of its question.
        for (run, fence), exhausted in asking.items():
            self._note_question(state, run, fence, exhausted)
        return verdicts

    def _note_question(
        self, state: BudgetState, run: str, fence: int, exhausted: Reservation | None
    ) -> None:
        """Note what an execution asks a person, or that it no longer asks anything.

        `exhausted` is a use that has just been found exhausted. If there is none, but other uses
        wait, their question keeps its epoch: the budget may have been raised since.
        """
        uses = [use for use in self._exhausted.values() if holder_of(use.id) == (run, fence)]
        if exhausted is not None:
            state.ask(run, fence, exhausted.amounts)
        elif not uses:
            state.withdraw(run, fence)
        if exhausted is not None:
            exhausted.question = question(state, run)
            exhausted.lacks = list(state.lacks(exhausted.amounts))


def _reserve(state: BudgetState, asked: list[_Question]) -> list[Verdict]:
    verdicts = []
    for use, only_checks, answer in asked:
        if answer.done():
            # Its step was cancelled, and nothing waits for the answer.
            verdicts.append(Verdict.BUSY)
        else:
            place = state.check if only_checks else state.reserve
            verdicts.append(place(use.id, use.amounts, use.limits, use.enclosing))
    return verdicts


def _ended(store: Store, holders: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the executions that have ended: their runs are not held, or by another one."""
    found = []
    for run, fence in sorted(holders):
        row = store.run(run)
        if row is None or row.status != "running" or row.fence != fence:
            found.append((run, fence))
    return found
