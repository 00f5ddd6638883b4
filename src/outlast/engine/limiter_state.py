"""Define the state of a limiter: what was used, which uses wait, and when each of them is due.

This module does no I/O. Uses are counted in sliding windows, and waiting uses are served in order.
See docs/architecture-spending.md.
"""

from __future__ import annotations

import json
import math
from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Self

from outlast.codec.rates import Rate

SLICES = 60
"""Into how many slices a period is divided. Amounts of one slice are counted together."""
MARGIN_SECONDS = 0.25
TICKETS_MAX = 1000
"""How many uses may wait in order of arrival."""

Amounts = Mapping[str, int]


def margin_of(period: float) -> float:
    """Return how many seconds after its grant a use may begin."""
    return max(period / SLICES, min(period / 10, MARGIN_SECONDS))


class Ticket:
    """The place of one waiting use in the queue of the limiter."""

    __slots__ = ("amounts", "at", "is_moving", "number", "owner")

    def __init__(self, number: int, owner: str | None, at: float, amounts: dict[str, int]) -> None:
        self.number = number
        self.owner = owner
        """The name of a use whose step was postponed and will return for the ticket. None while a
        process waits with the ticket."""
        self.at = at
        """When the use may begin."""
        self.amounts = amounts
        self.is_moving = False
        """True if it was due, but its use did not begin in time."""


class _Window:
    """The amounts that count under one name, while tickets are scheduled in order."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._parts: deque[tuple[float, int]] = deque()
        self.total = 0

    def add(self, counted_from: float, amount: int) -> None:
        """Count an amount. Each call has a later time than the one before."""
        self._parts.append((counted_from, amount))
        self.total += amount

    def drop_until(self, now: float) -> None:
        """Forget what no longer counts."""
        while self._parts and self._parts[0][0] + self._rate.period <= now:
            self.total -= self._parts.popleft()[1]

    def free_at(self, now: float, amount: int) -> float:
        """Return the earliest time, from `now` on, at which an amount fits under the limit."""
        self.drop_until(now)
        # An amount above the limit, from before the limit was lowered, has a window to itself.
        while self._parts and self.total + amount > self._rate.limit:
            counted_from, used = self._parts.popleft()
            self.total -= used
            now = max(now, counted_from + self._rate.period)
        return now


class LimiterState:
    """What a store keeps of a limiter. Times are the store's."""

    def __init__(self, rates: Mapping[str, Rate]) -> None:
        self.rates = dict(rates)
        self._used: dict[str, dict[float, int]] = {}
        """For each name, the amount by the time from which it counts for one period."""
        self.tickets: list[Ticket] = []
        """The uses that wait, and those that have just become due, by number."""
        self._next_number = 1

    # -- reading and writing

    @classmethod
    def read(cls, text: str | None, rates: Mapping[str, Rate] | None = None) -> Self:
        """Read a state. `rates` replace those it was written with. Raise ValueError, KeyError or
        TypeError if it is damaged.
        """
        found: dict[str, Any] = {} if text is None else dict(json.loads(text))
        if text is not None and "rates" not in found:
            raise ValueError(f"it has no rates: {text[:80]}")
        state = cls({name: Rate(*rate) for name, rate in found.get("rates", {}).items()})
        for name, parts in found.get("used", {}).items():
            if name not in state.rates:
                raise KeyError(name)
            state._used[name] = {float(at): int(amount) for at, amount in parts}
        state.tickets = [Ticket(*one) for one in found.get("tickets", ())]
        state._next_number = int(found.get("next", 1))
        if rates is not None:
            unused = [
                name for name in state.rates if name not in rates and not state._used.get(name)
            ]
            for name in unused:
                del state.rates[name]
            state.rates.update(rates)
        return state

    def text(self) -> str:
        return json.dumps(
            {
                "rates": self.rates,
                "used": {name: sorted(parts.items()) for name, parts in self._used.items()},
                "tickets": [[one.number, one.owner, one.at, one.amounts] for one in self.tickets],
                "next": self._next_number,
            },
            separators=(",", ":"),
        )

    # -- counting

    @property
    def margin(self) -> float:
        """Return how many seconds after it was due a use may begin."""
        return min(margin_of(rate.period) for rate in self.rates.values())

    def used(self, now: float) -> dict[str, int]:
        """Return what counts now, by name."""
        found = {}
        for name, window in self._windows(now).items():
            window.drop_until(now)
            found[name] = window.total
        return found

    def use_up(self, now: float) -> None:
        """Count the whole limit as used, because the real usage is unknown."""
        for name, rate in self.rates.items():
            self._count(name, now, rate.limit)

    def expire(self, now: float) -> None:
        """Forget what has left its window, and count tickets whose uses can no longer begin."""
        for name, parts in self._used.items():
            period = self.rates[name].period
            for at in [at for at in parts if at > now + period]:
                # A clock was set back.
                self._count(name, now, parts.pop(at))
            for at in [at for at in parts if at + period <= now]:
                del parts[at]
        longest = max(rate.period for rate in self.rates.values())
        margin = self.margin
        for ticket in list(self.tickets):
            if ticket.owner is None and ticket.at + margin < now:
                self.count(ticket)
            elif ticket.at + longest + margin < now:
                # Its step never came back, and its amounts have left their windows.
                self.tickets.remove(ticket)

    def settle(self, number: int | None, at: float, changes: Amounts) -> None:
        """Correct the amounts of a use that was due at `at`, if they still count."""
        ticket = None if number is None else self.find(number)
        for name, change in changes.items():
            if ticket is not None:
                ticket.amounts[name] = max(0, ticket.amounts.get(name, 0) + change)
            elif name in self.rates:
                parts = self._used.get(name, {})
                counted_from = self._counted_from(name, at)
                if counted_from in parts:
                    parts[counted_from] = max(0, parts[counted_from] + change)

    def count(self, ticket: Ticket) -> None:
        """Remove a ticket and count its amounts."""
        self.tickets.remove(ticket)
        for name, amount in ticket.amounts.items():
            if name in self.rates:
                self._count(name, ticket.at, amount)

    def _count(self, name: str, at: float, amount: int) -> None:
        parts = self._used.setdefault(name, {})
        counted_from = self._counted_from(name, at)
        parts[counted_from] = parts.get(counted_from, 0) + amount

    def _counted_from(self, name: str, at: float) -> float:
        """Return the time from which an amount counts for one period: the end of its slice, and the
        margin within which its use may begin.
        """
        period = self.rates[name].period
        size = period / SLICES
        return round(math.ceil(at / size) * size + margin_of(period), 3)

    # -- the line

    def insert(self, amounts: Amounts, number: int | None = None) -> Ticket:
        """Add a ticket: as the last one, or under the number that it had before.

        `schedule` sets when it is due.
        """
        number = self._next_number if number is None else number
        ticket = Ticket(number, None, 0.0, dict(amounts))
        ticket.is_moving = True
        insort(self.tickets, ticket, key=attrgetter("number"))
        self._next_number = max(self._next_number, number + 1)
        return ticket

    def find(self, number: int) -> Ticket | None:
        return next((one for one in self.tickets if one.number == number), None)

    def find_owned(self, owner: str) -> Ticket | None:
        return next((one for one in self.tickets if one.owner == owner), None)

    def remove(self, number: int) -> None:
        """Remove a ticket whose use will not begin."""
        self.tickets = [one for one in self.tickets if one.number != number]

    def schedule(self, now: float) -> None:
        """Set when each waiting ticket is due: as early as the limits allow, in order."""
        windows = self._windows(now)
        at = now
        for ticket in self.tickets:
            if ticket.at <= now and not ticket.is_moving:
                continue
            wanted = {name: amount for name, amount in ticket.amounts.items() if name in windows}
            for name, amount in wanted.items():
                at = windows[name].free_at(at, amount)
            ticket.at = at
            ticket.is_moving = False
            for name, amount in wanted.items():
                windows[name].add(self._counted_from(name, at), amount)

    def _windows(self, now: float) -> dict[str, _Window]:
        """Return what counts, without the tickets that are not due yet."""
        windows = {}
        for name, rate in self.rates.items():
            due = [one for one in self.tickets if one.at <= now and not one.is_moving]
            windows[name] = _window(
                rate,
                [
                    *self._used.get(name, {}).items(),
                    *((self._counted_from(name, one.at), one.amounts.get(name, 0)) for one in due),
                ],
            )
        return windows


def _window(rate: Rate, parts: Iterable[tuple[float, int]]) -> _Window:
    window = _Window(rate)
    for at, amount in sorted(parts):
        window.add(at, amount)
    return window
