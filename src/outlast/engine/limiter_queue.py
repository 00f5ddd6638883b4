"""Reserve the uses of a limiter by one process, in batches.

One task applies all pending requests to the limiter's state and writes the state once. If another
process has written the state in the meantime, the task repeats the batch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from outlast.codec.rates import Rate
from outlast.engine.background import Background
from outlast.engine.limiter_state import TICKETS_MAX, Amounts, LimiterState, Ticket, margin_of
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreUnavailable
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import Refused, UpdateSession

LIMITERS = "limiters"
"""The session space of limiters."""
STATE = "state"
TTL = 86_400.0
RECHECK_SECONDS_MIN = 0.25
"""A use that waits less than twice this is rechecked only when it is due."""

log = logging.getLogger("outlast")


class Granted(NamedTuple):
    """A use may begin."""

    number: int | None
    """The number of its ticket, while that may still be queued."""
    at: float


class Postponed(NamedTuple):
    """A use has to wait longer than its step may wait.

    The step ends and is retried at this time.
    """

    until: float


class Waiting(NamedTuple):
    """A use has to wait."""

    number: int | None
    """The number of its ticket. None if no more tickets fit."""
    at: float


Answer = Granted | Postponed | Waiting


class Reservation:
    """A request for one use of the limiter, until it is answered."""

    __slots__ = ("amounts", "answer", "hold", "owner", "recheck_at", "waiting")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, amounts: Amounts, owner: str | None, hold: float
    ) -> None:
        self.amounts = amounts
        self.owner = owner
        """The name that identifies its step when the step is retried. None if the step cannot be
        postponed."""
        self.hold = hold
        """How many seconds it waits before its step is postponed."""
        self.waiting: Waiting | None = None
        """Its ticket and due time, once they are written."""
        self.recheck_at = 0.0
        """When to check again whether it is due."""
        self.answer: asyncio.Future[Granted | Postponed] = loop.create_future()

    @property
    def number(self) -> int | None:
        return None if self.waiting is None else self.waiting.number

    def answer_with(self, answer: Answer, now: float) -> None:
        """Record the answer, or when to check again."""
        if not isinstance(answer, Waiting):
            self.answer.set_result(answer)
            return
        self.waiting = answer
        seconds = answer.at - now
        self.recheck_at = answer.at if seconds < 2 * RECHECK_SECONDS_MIN else now + seconds / 2


class _Settlement(NamedTuple):
    number: int | None
    at: float
    changes: Amounts


class LimiterQueue:
    """The uses of one limiter in this process."""

    def __init__(
        self,
        name: str,
        rates: Mapping[str, Rate],
        client: StoreClient,
        background: Background,
        shutdown: ShutdownState,
    ) -> None:
        self.name = name
        self.rates = dict(rates)
        self._client = client
        self._background = background
        self._shutdown = shutdown
        periods = [rate.period for rate in self.rates.values()]
        self._ttl = max(TTL, 2 * max(periods))
        self._margin = min(map(margin_of, periods))
        self._waiting: list[Reservation] = []
        """Uses that are not answered, in the order of their arrival."""
        self._settled: list[_Settlement] = []
        self._abandoned: list[int] = []
        """The numbers of tickets whose uses were cancelled."""
        self._must_write = False
        self._changed = asyncio.Event()
        self._known: tuple[int, LimiterState] | None = None
        """The last version and state, if this process has written them."""
        self._task: asyncio.Task[None] | None = None

    async def reserve(
        self, amounts: Amounts, owner: str | None, hold: float
    ) -> Granted | Postponed:
        """Wait until a use may begin.

        Return Postponed if its step should end and be retried later.
        """
        wanted = Reservation(self._background.loop, amounts, owner, hold)
        self._waiting.append(wanted)
        self._work()
        try:
            if not self._shutdown.begun:
                ends: list[asyncio.Future[Any]] = [wanted.answer, self._shutdown.announced]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not wanted.answer.done() and owner is not None and wanted.waiting is not None:
                    # A drain must not wait for the limiter.
                    return Postponed(wanted.waiting.at)
            return await wanted.answer
        finally:
            self._forget(wanted)

    def _forget(self, wanted: Reservation) -> None:
        """Remove a use that was not answered, because its step was cancelled."""
        wanted.answer.cancel()
        if wanted in self._waiting:
            self._waiting.remove(wanted)
            if wanted.number is not None:
                self._abandoned.append(wanted.number)
                self._work()

    def is_late(self, grant: Granted) -> bool:
        """Return whether it is too late for a use to begin."""
        return self._client.store.now() - grant.at > self._margin

    def settle(self, grant: Granted, changes: Amounts) -> None:
        """Correct what a use has reserved.

        The correction is written soon, together with other changes.

        If this process dies before, what was reserved counts.
        """
        self._settled.append(_Settlement(grant.number, grant.at, changes))
        self._work()

    # -- the task

    def _work(self) -> None:
        self._must_write = True
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = self._background.spawn(self._serve())

    async def _serve(self) -> None:
        """Write and recheck until no use waits and nothing remains to be written."""
        try:
            while self._must_write or self._waiting:
                self._changed.clear()
                if self._must_write:
                    self._must_write = False
                    await self._write()
                else:
                    await self._recheck()
                if not self._must_write and self._waiting:
                    await self._pause()
        except asyncio.CancelledError:
            self._fail(StoreUnavailable("Outlast was closed while a use of a limiter waited."))
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Raise an error in all uses that wait. Their tickets count once, when they are due."""
        waiting, self._waiting = self._waiting, []
        self._settled, self._abandoned, self._known = [], [], None
        for one in waiting:
            if not one.answer.done():
                one.answer.set_exception(error)

    async def _pause(self) -> None:
        """Wait until a use must be rechecked, or until there is something to write."""
        recheck_at = min(one.recheck_at for one in self._waiting)
        try:
            async with asyncio.timeout(max(0.0, recheck_at - self._client.store.now())):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _recheck(self) -> None:
        """Answer the uses that are due. Request a write if one is too late or has no ticket."""
        version, state = await self._read()
        now = self._client.store.now()
        for one in list(self._waiting):
            ticket = None if one.number is None else state.find(one.number)
            if one.number is None:
                self._must_write |= one.recheck_at <= now
            elif ticket is None or ticket.at + self._margin < now:
                self._must_write = True
            elif ticket.at <= now:
                self._deliver(one, Granted(ticket.number, ticket.at), now)
            else:
                one.answer_with(Waiting(ticket.number, ticket.at), now)
        self._known = (version, state)

    async def _write(self) -> None:
        """Apply all requests, write the state, and answer the uses."""
        settled, self._settled = self._settled, []
        abandoned, self._abandoned = self._abandoned, []
        known, self._known = self._known, None
        while True:
            version, state = await self._read() if known is None else known
            now = self._client.store.now()
            state.expire(now)
            for settlement in settled:
                state.settle(*settlement)
            for number in abandoned:
                state.remove(number)
            answers = _place(state, self._waiting, now)
            written = await self._client.writer.execute(
                UpdateSession(
                    self.name,
                    secrets.token_hex(8),
                    {STATE: state.text()},
                    ttl=self._ttl,
                    version=version,
                    space=LIMITERS,
                )
            )
            if not isinstance(written, Refused):
                break
            # Another process has written the state since it was read.
            known = None
        if known is not None:
            self._known = (int(written), state)
        for one, answer in answers:
            self._deliver(one, answer, now)

    def _deliver(self, one: Reservation, answer: Answer, now: float) -> None:
        """Answer a use. If it has been cancelled, release what it reserved."""
        if not one.answer.done():
            one.answer_with(answer, now)
            if not isinstance(answer, Waiting):
                self._waiting.remove(one)
        elif isinstance(answer, Granted):
            self.settle(answer, {name: -amount for name, amount in one.amounts.items()})
        elif isinstance(answer, Waiting) and answer.number is not None:
            self._abandoned.append(answer.number)
            self._work()

    async def _read(self) -> tuple[int, LimiterState]:
        """Read the limiter's version and state.

        If the state is damaged, count the whole limit as used now, because the real usage is
        unknown.
        """
        row = await self._client.read(self._client.store.session, self.name, LIMITERS)
        if row is None:
            return 0, LimiterState(self.rates)
        try:
            return row.version, LimiterState.read(row.fields[STATE], self.rates)
        except (KeyError, TypeError, ValueError) as error:
            log.error(
                "The state of limiter %r in the store is damaged (%r). It starts again, and its "
                "limit counts as used up.",
                self.name,
                error,
            )
            state = LimiterState(self.rates)
            state.use_up(self._client.store.now())
            return row.version, state


def _place(
    state: LimiterState, uses: list[Reservation], now: float
) -> list[tuple[Reservation, Answer]]:
    """Give every use a ticket, and count the uses that may begin. Return the answer to each."""
    tickets = [(one, _ticket_of(state, one, now)) for one in uses]
    state.schedule(now)
    answers: list[tuple[Reservation, Answer]] = []
    for one, ticket in tickets:
        at = state.tickets[-1].at if ticket is None else ticket.at
        if ticket is not None and at <= now:
            state.count(ticket)
            answers.append((one, Granted(None, at)))
        elif one.owner is not None and at - now > one.hold:
            if ticket is not None:
                ticket.owner = one.owner
            answers.append((one, Postponed(at)))
        else:
            answers.append((one, Waiting(None if ticket is None else ticket.number, at)))
    return answers


def _ticket_of(state: LimiterState, one: Reservation, now: float) -> Ticket | None:
    """Return the ticket of a use, old or new. Return None if no more tickets fit."""
    if one.number is not None:
        # A ticket whose use came too late was removed.
        return state.find(one.number) or state.insert(one.amounts, one.number)
    if one.owner is not None and (ticket := state.find_owned(one.owner)) is not None:
        ticket.owner = None
        ticket.is_moving = ticket.at <= now
        return ticket
    return state.insert(one.amounts) if len(state.tickets) < TICKETS_MAX else None
