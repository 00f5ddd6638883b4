"""Hold the budgets that this process uses, list those of the store, and raise them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from outlast.codec.cost import Cost, plain_amount
from outlast.engine.background import Background
from outlast.engine.budget_queue import BudgetQueue
from outlast.engine.budget_state import Ask, BudgetState, Limits
from outlast.engine.budget_store import (
    BUDGETS,
    RAISED,
    STATE,
    BudgetId,
    change_budget,
    matching,
    parts_of,
    questions_of,
)
from outlast.engine.store_client import StoreClient
from outlast.errors import SettingsError, StoreBroken, UnknownEffect, Unrecordable
from outlast.store.commands import STATUS, Refused, Resume
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import RunRow
from outlast.store.session_rows import SessionQuery
from outlast.store.tolerant_rows import legible

PAGE = 100
RESUMED_BY = "budget "
"""How the tokens begin with which runs are resumed whose budget was raised."""
_MAY_PARK = frozenset({"queued", "running", "waiting"})
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError)


class BudgetInfo(NamedTuple):
    """A budget, and what is left of it."""

    id: str
    """Its id, such as `run:r-1/answer`."""
    name: str
    run: str | None
    """The run that it belongs to, with its children. None if it is of a key or a session."""
    key: str | None
    session: str | None
    limits: dict[str, int | float]
    """The limits that apply."""
    spent: dict[str, int | float]
    reserved: dict[str, int | float]
    """What the uses in progress have reserved."""
    left: dict[str, int | float]
    waiting: tuple[str, ...]
    """The runs that wait until a person raises it."""
    raised_by: str | None
    """Who set its limits last, if that was recorded."""

    @classmethod
    def of(cls, id: str, state: BudgetState) -> BudgetInfo:
        """Return the limits and the use of a budget."""
        kind, of = parts_of(id)
        limits = state.limit_of
        return cls(
            id,
            state.name,
            of if kind == "run" else None,
            of if kind == "key" else None,
            of if kind == "session" else None,
            Cost(limits).document(),
            Cost({name: state.spent.get(name) for name in limits}).document(),
            Cost({name: state.reserved.get(name) for name in limits}).document(),
            Cost(state.left).document(),
            tuple(sorted(state.asks)),
            state.raised_by,
        )


class Budgets:
    """The queues of the budgets that this process uses, by id.

    A queue lasts as long as a run that uses it executes here.
    """

    def __init__(self, client: StoreClient, background: Background) -> None:
        self._client = client
        self._background = background
        # A worker may execute any number of runs, each with budgets of its own.
        self._queues: WeakValueDictionary[BudgetId, BudgetQueue] = WeakValueDictionary()
        self._unwritten: set[BudgetQueue] = set()
        """The queues whose settlements could not be written, for the next use."""
        self._last_number = 0

    def get(self, budget: BudgetId) -> BudgetQueue:
        """Return the queue of a budget."""
        queue = self._queues.get(budget)
        if queue is None:
            queue = BudgetQueue(budget, self._client, self._background, self._unwritten)
            self._queues[budget] = queue
        return queue

    def next_number(self) -> int:
        """Return a number that no other use of this process has."""
        self._last_number += 1
        return self._last_number

    async def page(
        self, after: str | None = None, limit: int = PAGE, prefix: str = ""
    ) -> BudgetPage:
        """Return budgets of the store, ordered by id."""
        return await self._client.read(read_budgets, self._client.store, after, limit, prefix)

    # -- raising

    async def raise_to(self, id: str, limits: Mapping[str, Any], by: str | None) -> BudgetInfo:
        """Set limits of a budget, and resume the runs that wait for it. A repeat is harmless.

        Raise SettingsError if there is no such budget, or if it has no such limit.
        """
        amounts = limits_of(limits, "the limit of a budget")
        state = await self._change(id, amounts, by, None)
        return BudgetInfo.of(id, await self.resume_answered(id) or state)

    async def decide(
        self, row: RunRow, wanted: str, limits: Mapping[str, Any], by: str | None
    ) -> None:
        """Set limits of a budget that a run waits for. See `raise_to`.

        Raise UnknownEffect if the run waits for no such budget, and SettingsError if the limits
        leave no room for what it wants to reserve.
        """
        amounts = limits_of(limits, "the limit of a budget")
        store = self._client.store
        asked = await self._client.read(questions_of, store, row.id)
        found = matching(asked, wanted)
        if not found:
            # This may be a repeat.
            found = matching(await self._client.read(_was_resumed_for, store, row), wanted)
        if len(found) != 1:
            raise UnknownEffect(row.id, wanted, [f"budget:{id}" for id in asked])
        await self._change(found[0], amounts, by, row.id)
        await self.resume_answered(found[0])

    async def _change(
        self, id: str, amounts: Limits, by: str | None, run: str | None
    ) -> BudgetState:
        def change(state: BudgetState) -> None:
            _check_names(id, state, amounts)
            ask = None if run is None else state.asks.get(run)
            state.raise_to(amounts, by)
            if ask is not None:
                _check_enough(id, state, ask)

        changed = await self._changed(id, change)
        if changed is None:
            raise SettingsError(f"there is no budget {id!r}. `outlast budgets` lists them.")
        return changed

    async def _changed(
        self, id: str, change: Callable[[BudgetState], object]
    ) -> BudgetState | None:
        try:
            return await change_budget(self._client, id, change)
        except SettingsError:
            raise
        except _DAMAGED as error:
            raise StoreBroken(f"the state of budget {id!r} is damaged: {error!r}") from error

    async def resume_answered(self, id: str) -> BudgetState | None:
        """Resume the runs that asked before a budget was raised last. A repeat is harmless.

        The question of a run that still executes stays: it may be about to park. Return None if
        there is no such budget.
        """
        state = await self._changed(id, lambda _: None)
        if state is None:
            return None
        over = {}
        for run, ask in state.answered.items():
            token = f"{RESUMED_BY}{ask.epoch} {id}"
            answer = await self._client.writer.execute(Resume(run, token, state.raised_by))
            is_refused = isinstance(answer, Refused) and answer.why == STATUS
            if not (is_refused and answer.detail in _MAY_PARK):
                over[run] = ask

        def forget(state: BudgetState) -> None:
            for run, ask in over.items():
                # It may have asked again since.
                if state.asks.get(run) == ask:
                    del state.asks[run]

        return await self._changed(id, forget) if over else state

    async def resume_all_answered(self) -> None:
        """Resume the runs of all budgets that were raised, for processes that died before that."""
        query = SessionQuery(RAISED, by_id=True, limit=PAGE)
        while page := await self._client.read(self._client.store.sessions, query):
            for row in page:
                await self.resume_answered(row.id)
            query = query._replace(after=page[-1].id)


class BudgetPage(NamedTuple):
    """A part of the list of budgets."""

    budgets: list[BudgetInfo]
    damaged: list[str]
    """The ids of budgets whose state cannot be read."""
    next: str | None
    """The id after which the next page begins. None if this is the last one."""


def read_budgets(
    store: Store, after: str | None = None, limit: int = PAGE, prefix: str = ""
) -> BudgetPage:
    """Return budgets of a store whose ids begin with `prefix`, ordered by id."""
    query = SessionQuery(
        BUDGETS, prefix=prefix, by_id=True, values=True, limit=limit + 1, after=after
    )
    rows = store.sessions(query)
    found: list[BudgetInfo] = []
    damaged: list[str] = []
    for row in rows[:limit]:
        try:
            found.append(BudgetInfo.of(row.id, BudgetState.read(row.fields[STATE])))
        except _DAMAGED:
            damaged.append(row.id)
    return BudgetPage(found, damaged, rows[limit - 1].id if len(rows) > limit else None)


def limits_of(limits: Mapping[str, Any], call: str) -> dict[str, Decimal]:
    """Return limits as decimals. Raise SettingsError for an invalid name or amount."""
    if not limits:
        raise SettingsError(f"{call} is missing. Give an amount, such as usd=5.")
    try:
        amounts = Cost.of(limits, call)
    except Unrecordable as error:
        raise SettingsError(str(error)) from None
    return {name: amounts.get(name) for name in limits}


def _check_names(id: str, state: BudgetState, amounts: Limits) -> None:
    for name in amounts:
        if name not in state.limit_of:
            known = ", ".join(state.limit_of)
            raise SettingsError(f"budget {id!r} has no limit {name!r}, only: {known}.")


def _check_enough(id: str, state: BudgetState, ask: Ask) -> None:
    lacks = state.lacks(ask.amounts)
    if lacks:
        # At a limit, no use begins, even if it reserves nothing of it.
        needed = ", ".join(
            f"{name}={plain_amount(one)}"
            if ask.amounts.get(name)
            else f"more than {name}={plain_amount(one)}"
            for name, one in lacks.items()
        )
        raise SettingsError(
            f"budget {id!r} would still be exhausted: the run wants to reserve {ask.amounts}. "
            f"Set at least: {needed}."
        )


def _was_resumed_for(store: Store, row: RunRow) -> list[str]:
    """Return the budgets for which a run was resumed before."""
    with legible(f"the journal of run {row.id!r}"):
        tokens = [
            str(json.loads(entry.value or "{}").get("token"))
            for entry in whole_journal(store, row.pk)
            if entry.kind == "resume"
        ]
    found = {token.split(" ", 2)[2] for token in tokens if token.startswith(RESUMED_BY)}
    return sorted(found)
