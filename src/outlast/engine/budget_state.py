"""Define the state of a budget: what was spent, what is reserved, and which runs wait for a person.

It is pure. See docs/architecture-spending.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any, NamedTuple, Self

from outlast.codec.cost import NOTHING, Cost, difference, plain_amount

Limits = Mapping[str, Decimal]


class Verdict(Enum):
    """What becomes of a use that asks for a part of a budget."""

    GRANTED = auto()
    BUSY = auto()
    """It does not fit now, but may fit when other uses settle for less than they reserved."""
    EXHAUSTED = auto()
    """It does not fit, whatever the other uses settle for. Only a higher limit lets it begin."""


class Ask(NamedTuple):
    """A run that waits until a person raises the budget."""

    epoch: int
    """The epoch in which it asked. The budget was raised since if its epoch is higher."""
    fence: int
    """The fence of the execution that asked."""
    amounts: Cost
    """What it wants to reserve."""


class BudgetState:
    """What a store keeps of a budget."""

    def __init__(self, name: str, limits: Limits, *, seed: str = "", epoch: int = 0) -> None:
        self.name = name
        self.seed = seed
        """The seed of the run that the budget is of. Another run of the same id starts afresh."""
        self.limits = dict(limits)
        """The limits of the code that used it last."""
        self.raised: dict[str, Decimal] = {}
        """The limits that a person has set. They replace those of the code."""
        self.raised_by: str | None = None
        self.spent = NOTHING
        self.held: dict[str, Cost] = {}
        """What the uses in progress have reserved, by their ids. See `hold_id`."""
        self.asks: dict[str, Ask] = {}
        """By the id of the run."""
        self.epoch = epoch
        """It grows whenever a person sets limits. A new state begins with the time in seconds, so
        no epoch of a state that expired occurs again."""

    # -- reading and writing

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a state.

        Raise ValueError, KeyError, TypeError or AttributeError if it is damaged.
        """
        found: dict[str, Any] = dict(json.loads(text))
        state = cls(str(found["name"]), _amounts(found["limits"]), seed=str(found["seed"]))
        state.raised = _amounts(found["raised"])
        by = found["raised_by"]
        state.raised_by = None if by is None else str(by)
        state.spent = _cost(found["spent"])
        state.held = {id: _cost(amounts) for id, amounts in found["held"].items()}
        for id in state.held:
            holder_of(id)
        state.asks = {
            run: Ask(int(epoch), int(fence), _cost(amounts))
            for run, (epoch, fence, amounts) in found["asks"].items()
        }
        state.epoch = int(found["epoch"])
        return state

    def text(self) -> str:
        return json.dumps(
            {
                "name": self.name,
                "seed": self.seed,
                "limits": _texts(self.limits.items()),
                "raised": _texts(self.raised.items()),
                "raised_by": self.raised_by,
                "spent": _texts(self.spent),
                "held": {id: _texts(amounts) for id, amounts in self.held.items()},
                "asks": {
                    run: [ask.epoch, ask.fence, _texts(ask.amounts)]
                    for run, ask in self.asks.items()
                },
                "epoch": self.epoch,
            },
            separators=(",", ":"),
        )

    @classmethod
    def used_up(cls, name: str, limits: Limits, *, seed: str = "", epoch: int = 0) -> Self:
        """Return a state that has nothing left, for when it is not known what was spent."""
        state = cls(name, limits, seed=seed, epoch=epoch)
        state.spent = Cost({unit: amount for unit, amount in limits.items() if amount})
        return state

    # -- looking

    @property
    def limit_of(self) -> dict[str, Decimal]:
        """Return the limits that apply."""
        return {**self.limits, **{name: self.raised[name] for name in self.raised}}

    @property
    def reserved(self) -> Cost:
        """Return what all uses in progress have reserved."""
        return _sum(self.held.values())

    @property
    def left(self) -> dict[str, Decimal]:
        """Return what can still be reserved, at least 0."""
        used = self.spent + self.reserved
        return {
            name: max(Decimal(0), difference(limit, used.get(name)))
            for name, limit in self.limit_of.items()
        }

    def holders(self) -> set[tuple[str, int]]:
        """Return the runs that hold reservations, each with the fence of its execution."""
        return {holder_of(id) for id in self.held}

    def lacks(self, amounts: Cost) -> dict[str, Decimal]:
        """Return the least limits with which a use of these amounts fits, where more is needed."""
        needed = self.spent + amounts
        return {
            name: needed.get(name)
            for name, limit in self.limit_of.items()
            if not _fits(limit, self.spent, amounts, name)
        }

    # -- uses

    def reserve(
        self, id: str, amounts: Cost, limits: Limits, enclosing: Collection[str] = ()
    ) -> Verdict:
        """Reserve amounts for a use, if they fit. What is reserved already is not added twice.

        `enclosing` are the ids of the uses around it, which do not settle before it.
        """
        verdict = self.check(id, amounts, limits, enclosing)
        if verdict is Verdict.GRANTED:
            self.held[id] = amounts
        return verdict

    def check(
        self, id: str, amounts: Cost, limits: Limits, enclosing: Collection[str] = ()
    ) -> Verdict:
        """Return what would become of a use."""
        self.limits = dict(limits)
        self._drop_older(id)
        if id in self.held or self._fits_beside(self.held.values(), amounts):
            return Verdict.GRANTED
        certain = [self.held[one] for one in enclosing if one in self.held]
        return Verdict.BUSY if self._fits_beside(certain, amounts) else Verdict.EXHAUSTED

    def settle(self, id: str, amounts: Cost) -> None:
        """Count what a use has really spent. Do nothing if its reservation is counted already."""
        if self.held.pop(id, None) is not None:
            self.spent += amounts

    def count_orphans(self, run: str, fence: int) -> None:
        """Count the reservations of an execution that has ended as spent."""
        for id in [id for id in self.held if holder_of(id) == (run, fence)]:
            self.settle(id, self.held[id])

    def _drop_older(self, id: str) -> None:
        """Count what earlier executions of the same run have reserved as spent."""
        run, fence = holder_of(id)
        for holder, older in self.holders():
            if holder == run and older < fence:
                self.count_orphans(holder, older)

    def _fits_beside(self, held: Collection[Cost], amounts: Cost) -> bool:
        used = self.spent + _sum(held)
        return all(_fits(limit, used, amounts, name) for name, limit in self.limit_of.items())

    # -- asking a person

    def ask(self, run: str, fence: int, amounts: Cost) -> None:
        """Note that a run waits until a person raises the budget.

        Ignore an execution that was replaced by one that asks.
        """
        if self._may_ask(run, fence):
            self.asks[run] = Ask(self.epoch, fence, amounts)

    def withdraw(self, run: str, fence: int) -> None:
        """Note that an execution asks nothing. What a later execution of its run asks stays."""
        if self._may_ask(run, fence):
            self.asks.pop(run, None)

    def _may_ask(self, run: str, fence: int) -> bool:
        asked = self.asks.get(run)
        return asked is None or asked.fence <= fence

    def raise_to(self, limits: Limits, by: str | None) -> None:
        """Set limits, instead of those of the code. A repeat changes nothing."""
        if any(self.raised.get(name) != limit for name, limit in limits.items()):
            self.raised.update(limits)
            self.raised_by = by
            self.epoch += 1

    @property
    def answered(self) -> dict[str, Ask]:
        """Return the runs that asked before the budget was raised last."""
        return {run: ask for run, ask in self.asks.items() if ask.epoch < self.epoch}


def hold_id(run: str, fence: int, number: int) -> str:
    """Return the id of a use: of a run, under a fence, with a number of its process."""
    return f"{run}\n{fence}\n{number}"


def holder_of(id: str) -> tuple[str, int]:
    """Return the run and the fence of a use. Raise ValueError if the id is damaged."""
    run, fence, _ = id.rsplit("\n", 2)
    return run, int(fence)


def _fits(limit: Decimal, used: Cost, amounts: Cost, name: str) -> bool:
    """Return whether a use fits. At a limit, none begins that reserves nothing of it either."""
    return used.get(name) < limit and (used + amounts).get(name) <= limit


def _sum(costs: Collection[Cost]) -> Cost:
    total = NOTHING
    for one in costs:
        total += one
    return total


def _texts(amounts: Any) -> dict[str, str]:
    return {name: plain_amount(amount) for name, amount in amounts}


def _amounts(found: Mapping[str, Any]) -> dict[str, Decimal]:
    amounts = {}
    for name, text in found.items():
        try:
            amount = Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{name} is not an amount: {text!r}") from None
        if not isinstance(text, str) or not amount.is_finite() or amount < 0:
            raise ValueError(f"{name} is not an amount: {text!r}")
        amounts[name] = amount
    return amounts


def _cost(found: Mapping[str, Any]) -> Cost:
    return Cost({name: amount for name, amount in _amounts(found).items() if amount})
