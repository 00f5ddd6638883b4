"""Budgets on a virtual clock: what may begin, and what counts."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from budget_tools import spender, spent, spent_ids, worker

from outlast import (
    BudgetExhausted,
    NotInRun,
    SettingsError,
    budget,
    current,
    effect,
    step,
    workflow,
)
from outlast.engine.budget_store import BUDGETS


def test_run_within_its_budget_ends_and_what_it_spent_is_counted(memory_world):
    calls: list[str] = []
    several = spender(budget("answer", usd=5), calls, actual=0.25)
    assert memory_world.run(several("abc"), id="r") == "abc"
    assert spent(memory_world, "run:r/answer") == {"usd": 0.75}


def test_reported_cost_counts_where_nothing_else_is_said(memory_world):
    spend = budget("answer", usd=5, tokens=1000, images=9)

    @step
    async def think(usd: float) -> None:
        current().cost(usd=usd)

    @step
    async def ask() -> None:
        current().cost(usd=3)
        async with spend.use(usd=1, tokens=100, images=2) as used:
            current().cost(usd=0.25, tokens=10)
            await think(0.5)
            used.actual(tokens=7)
        current().cost(usd=3)

    @workflow
    async def one() -> None:
        await ask()

    memory_world.run(one(), id="r")
    assert spent(memory_world, "run:r/answer") == {"usd": 0.75, "tokens": 7, "images": 2}


def test_block_that_raises_counts_what_it_reserved_unless_it_said_otherwise(memory_world):
    spend = budget("answer", usd=5)

    @step
    async def ask(actual: float | None) -> None:
        async with spend.use(usd=1) as used:
            if actual is not None:
                used.actual(usd=actual)
            raise OSError

    @workflow
    async def two() -> None:
        for actual in (None, 0.25):
            try:
                await ask(actual)
            except OSError:
                continue

    memory_world.run(two(), id="r")
    assert spent(memory_world, "run:r/answer") == {"usd": 1.25}


def test_children_spend_the_budget_of_their_root(memory_world):
    calls: list[str] = []
    several = spender(budget("answer", usd=3), calls)

    @workflow
    async def middle(names: str) -> str:
        return await several(names)

    @workflow
    async def top() -> str:
        return await middle("ab") + await several("c")

    memory_world.run(top(), id="r")
    assert spent(memory_world, "run:r/answer") == {"usd": 3}
    assert spent_ids(memory_world) == ["run:r/answer"]


def test_run_without_a_key_cannot_use_a_budget_per_key(memory_world):
    several = spender(budget("customer", usd=3, per="key"), [])
    with pytest.raises(SettingsError, match="has no key"):
        memory_world.run(several("a"))


def test_runs_of_a_session_share_a_budget(memory_world):
    calls: list[str] = []
    several = spender(budget("chat", usd=3, session="chat-1"), calls)
    memory_world.run(several("ab"), id="r1")
    memory_world.run(several("c"), id="r2")
    assert spent(memory_world, "session:chat-1/chat") == {"usd": 3}


def test_run_of_an_id_that_was_pruned_has_a_new_budget(memory_world):
    several = spender(budget("answer", usd=2), [])

    async def prune(app):
        return await app.prune(0)

    memory_world.run(several("ab"), id="r")
    memory_world.clock.advance(10)
    assert memory_world.do(prune) == 1
    assert memory_world.run(several("ab"), id="r") == "ab"


def test_use_waits_while_another_may_settle_for_less(memory_world):
    spend = budget("answer", usd=3)
    began: list[float] = []

    @step
    async def ask(seconds: float) -> None:
        async with spend.use(usd=2) as used:
            began.append(memory_world.clock.elapsed)
            await asyncio.sleep(seconds)
            used.actual(usd=0.5)

    @workflow
    async def both() -> None:
        await asyncio.gather(ask(3), ask(1))

    memory_world.run(both(), id="r")
    assert began[1] - began[0] >= 3
    assert spent(memory_world, "run:r/answer") == {"usd": 1}


def test_run_that_waits_long_for_another_is_released_and_its_slot_is_free(memory_world):
    spend = budget("customer", usd=3, per="key")

    @step
    async def ask(seconds: float) -> int:
        async with spend.use(usd=2) as used:
            await asyncio.sleep(seconds)
            used.actual(usd=0.5)
        return current().attempt

    @workflow
    async def one(seconds: float) -> int:
        return await ask(seconds)

    @workflow
    async def other() -> str:
        return "done"

    async def main(app):
        slow = await app.submit(one(100), id="slow", key="c")
        await asyncio.sleep(1)
        blocked = await app.submit(one(1), id="blocked", key="c")
        await asyncio.sleep(10)
        (info,) = await app.runs(prefix="blocked")
        assert info.status == "waiting"
        quick = await app.submit(other())
        assert await quick.result(timeout=20) == "done"
        return [await slow.result(), await blocked.result()]

    app = worker(memory_world, one, other, concurrency=2)
    assert app.do(main) == [1, 1]


def test_effect_gets_an_error_because_it_may_have_begun(memory_world):
    spend = budget("answer", usd=1)
    acts: list[int] = []

    @effect(timeout=5, failed_on=BudgetExhausted)
    async def draw(number: int) -> None:
        async with spend.use(usd=1):
            acts.append(number)

    @workflow
    async def two() -> None:
        await draw(1)
        await draw(2)

    with pytest.raises(BudgetExhausted, match="1 of 1 usd are spent"):
        memory_world.run(two())
    assert acts == [1]


def test_step_that_the_workflow_gives_up_does_not_park_its_run(memory_world):
    calls: list[str] = []
    spend = budget("answer", usd=1)

    @step
    async def long() -> None:
        await asyncio.sleep(60)

    @step
    async def ask() -> None:
        async with spend.use(usd=1):
            calls.append("ask")

    @workflow
    async def impatient() -> str:
        await ask()
        waiting = asyncio.create_task(long())
        try:
            async with asyncio.timeout(10):
                await ask()
        except TimeoutError:
            await waiting
            return "gave up"
        return "waited"

    assert memory_world.run(impatient(), id="r") == "gave up"
    assert calls == ["ask"]


def test_hundred_parallel_steps_share_their_writes(memory_world):
    spend = budget("answer", usd=1000)

    @step
    async def ask(number: int) -> None:
        async with spend.use(usd=2):
            await asyncio.sleep(1)

    @workflow
    async def fan_out() -> None:
        await asyncio.gather(*(ask(number) for number in range(100)))

    memory_world.run(fan_out(), id="r")
    # One for all reservations, and few for all settlements.
    assert memory_world.store.session("run:r/answer", BUDGETS).version <= 5


def test_sums_are_exact(memory_world):
    calls: list[str] = []
    several = spender(budget("answer", usd=Decimal("0.3")), calls, cost=0.1)
    assert memory_world.run(several("abc")) == "abc"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "is missing"),
        ({"usd": -1}, "finite number"),
        ({"usd": "5"}, "takes a number"),
        ({"usd": float("nan")}, "finite number"),
        ({"usd": 1, "per": "day"}, "must be 'run' or 'key'"),
        ({"usd": 1, "per": "key", "session": "s"}, "not both"),
    ],
)
def test_impossible_budget_is_refused(limits, message):
    with pytest.raises(SettingsError, match=message):
        budget("answer", **limits)


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({}, "reserves nothing"),
        ({"usd": 0}, "reserves nothing"),
        ({"tokens": 1}, "no limit 'tokens', only: usd"),
        ({"usd": -1}, "finite number"),
        ({"usd": True}, "takes a number"),
    ],
)
def test_impossible_use_of_a_budget_is_refused_at_once(amounts, message):
    with pytest.raises(SettingsError, match=message):
        budget("answer", usd=5).use(**amounts)


def test_budget_is_for_steps(memory_world):
    spend = budget("answer", usd=1)

    @workflow
    async def wrong() -> None:
        async with spend.use(usd=1):
            pass

    with pytest.raises(NotInRun, match="step's body"):
        memory_world.run(wrong())

    @workflow
    async def looks() -> None:
        assert current().budget_left

    with pytest.raises(NotInRun, match="body of a step"):
        memory_world.run(looks(), id="looks")
