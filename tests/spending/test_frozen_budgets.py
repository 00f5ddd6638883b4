"""Processes that are paused, or cut off, between two writes of a budget."""

from __future__ import annotations

import asyncio

from budget_tools import spent_of

from outlast.codec.cost import Cost
from outlast.engine.budget_queue import BudgetQueue, Reservation
from outlast.engine.budget_state import BudgetState, Verdict, hold_id
from outlast.engine.budget_store import BudgetId


def _one_of_five():
    return Cost.of({"usd": 1}), dict(Cost.of({"usd": 5}))


def test_holder_that_was_frozen_and_replaced_settles_nothing_twice(memory_world):
    """Its reservation counts as spent, so its late call is covered."""
    state = BudgetState("answer", {})
    old, new = hold_id("r", 3, 1), hold_id("r", 8, 1)

    def amounts(usd: float):
        return Cost.of({"usd": usd})

    limits = dict(amounts(5))
    assert state.reserve(old, amounts(2), limits) is Verdict.GRANTED
    assert state.reserve(new, amounts(2), limits) is Verdict.GRANTED
    assert (str(state.spent), str(state.reserved)) == ("2 usd", "2 usd")
    state.settle(old, amounts(0.5))
    state.settle(new, amounts(0.5))
    assert (str(state.spent), str(state.reserved)) == ("2.5 usd", "nothing")


def test_frozen_process_that_reserves_late_is_counted(memory_world):
    """It was replaced while it was paused between its read and its write."""

    async def main(app):
        engine = app._open
        queue = BudgetQueue(BudgetId("answer", "run", "run"), engine.client, engine.background)
        stale = Reservation(hold_id("run", 1, 99), *_one_of_five(), ())
        await queue.reserve(stale)
        fresh = Reservation(hold_id("run", 10**6, 1), *_one_of_five(), ())
        await queue.reserve(fresh)
        return await spent_of(app, "run:run/answer")

    assert memory_world.do(main) == {"usd": 1}


def test_use_that_is_cancelled_by_the_parking_does_not_withdraw_its_question(memory_world):
    """A run that is parked cancels its uses while they look at the budget again."""

    async def main(app):
        engine = app._open
        queue = BudgetQueue(BudgetId("answer", "run", "run"), engine.client, engine.background)
        one, _ = _one_of_five()
        await queue.reserve(Reservation(hold_id("run", 1, 1), one, dict(one), ()))
        use = Reservation(hold_id("run", 1, 2), one, dict(one), ())
        await queue.settle(hold_id("run", 1, 1), one)
        assert await queue.reserve(use) is Verdict.EXHAUSTED
        looking = asyncio.create_task(queue.check(use))
        await asyncio.sleep(0)
        looking.cancel()
        queue.forget(use)
        await asyncio.sleep(1)
        return [info.waiting for info in await app.budgets()]

    assert memory_world.do(main) == [("run",)]


def test_frozen_process_does_not_withdraw_the_question_of_the_next_execution(memory_world):
    """It reserves what still fits, after the run was taken over and asks."""

    async def main(app):
        engine = app._open
        queue = BudgetQueue(BudgetId("answer", "run", "run"), engine.client, engine.background)
        one, limits = _one_of_five()
        assert await queue.reserve(Reservation(hold_id("run", 9, 1), one, dict(one), ()))
        await queue.settle(hold_id("run", 9, 1), one)
        asking = Reservation(hold_id("run", 9, 2), one, dict(one), ())
        assert await queue.reserve(asking) is Verdict.EXHAUSTED
        queue.forget(asking)
        stale = Reservation(hold_id("run", 3, 1), one, limits, ())
        assert await queue.reserve(stale) is Verdict.GRANTED
        return [info.waiting for info in await app.budgets()]

    assert memory_world.do(main) == [("run",)]
