"""Track what a step uses of limiters and budgets, and why it ends early because of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from decimal import Decimal
from typing import NamedTuple, Protocol

from outlast.codec.cost import Cost


class OpenUse:
    """A use of a limiter or a budget, from the moment it is entered until it is left.

    This class itself stands for a nested step or an item of a `map`, which may wait for a person.
    """

    def _cost_reported(self, cost: Cost) -> None:
        """Note what the step has spent within the block. Safe to call from any thread."""


OPEN_USES: ContextVar[tuple[OpenUse, ...]] = ContextVar("outlast_open_uses", default=())
"""The uses whose blocks the current code is in, outermost first."""


def begin_block(use: OpenUse) -> None:
    """Note that the current code enters the block of a use."""
    OPEN_USES.set((*OPEN_USES.get(), use))


def end_block(use: OpenUse) -> None:
    """Note that the current code leaves the block of a use."""
    OPEN_USES.set(tuple(one for one in OPEN_USES.get() if one is not use))


class Postponement(NamedTuple):
    """A step ends and continues later, without using up an attempt."""

    why: str
    until: float
    cancelled: bool = False
    """Whether its task was cancelled. A thread raises an exception instead."""
    wait: Callable[[], Awaitable[None]] | None = None
    """Returns when the step may continue, after `until`. None if it may continue then."""


class StepUses:
    """What a step of the workflow uses, with the steps and items within it."""

    __slots__ = ("_blocked", "_calls", "open", "postponed")

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        """The number of uses of each limiter in this attempt so far, by name."""
        self.open: set[OpenUse] = set()
        """The uses that wait or are in their blocks, and the nested steps and items in flight."""
        self._blocked: dict[OpenUse, tuple[OpenUse, ...]] = {}
        """The uses that wait for a person, or for other uses, each with those around it."""
        self.postponed: Postponement | None = None
        """Why and until when the step ends. It was cancelled for that reason."""

    @property
    def all_blocked(self) -> bool:
        """Return whether each open use waits for a budget, or is around a use that does."""
        waiting = {one for use, around in self._blocked.items() for one in (use, *around)}
        return bool(self._blocked) and self.open <= waiting

    def enter(self, use: OpenUse) -> None:
        """Note a use that waits or is in its block."""
        self.open.add(use)

    def leave(self, use: OpenUse) -> None:
        """Note that a use has ended. A repeat is harmless."""
        self.open.discard(use)
        self._blocked.pop(use, None)

    def block(self, use: OpenUse, around: tuple[OpenUse, ...]) -> None:
        """Note that a use waits for a person or other uses. `around` are the uses around it."""
        self._blocked[use] = around

    def unblock(self, use: OpenUse) -> None:
        """Note that a use no longer waits."""
        self._blocked.pop(use, None)

    def number(self, name: str) -> int:
        """Return the number of a new use of this limiter, from 1."""
        self._calls[name] = number = self._calls.get(name, 0) + 1
        return number

    def postpone(self, postponement: Postponement) -> None:
        """Note that the step ends and continues later."""
        self.postponed = postponement


class Root(NamedTuple):
    """The run at the top of a run and its parents."""

    id: str
    seed: str
    """Empty if that run was pruned."""
    key: str | None


class _Left(Protocol):
    left: dict[str, Decimal]


class RunBudgets:
    """The budgets that the steps of a run have used in this process."""

    __slots__ = ("_used", "root")

    def __init__(self) -> None:
        self.root: Root | None = None
        """None until it is read."""
        self._used: dict[str, _Left] = {}

    def note_root(self, root: Root) -> None:
        """Keep the root, which does not change."""
        self.root = root

    def add(self, id: str, budget: _Left) -> None:
        """Note that the run uses a budget."""
        self._used[id] = budget

    @property
    def left(self) -> Mapping[str, Decimal]:
        """Return for each name what the budget with the least has left, as last read."""
        least: dict[str, Decimal] = {}
        for budget in self._used.values():
            for name, left in budget.left.items():
                least[name] = min(left, least.get(name, left))
        return least
