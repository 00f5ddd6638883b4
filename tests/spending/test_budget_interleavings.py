"""Budgets whose runs are parked, cancelled or replaced in the middle of a write."""

from __future__ import annotations

import asyncio
import gc
from decimal import Decimal

import pytest
from budget_tools import parked, spender, spent, spent_of, until_done, worker

import outlast
from outlast import SettingsError, StepTimeout, StoreUnavailable, budget, step, workflow
from outlast.codec.cost import Cost
from outlast.engine.budget_queue import BudgetQueue, Reservation
from outlast.engine.budget_state import BudgetState, Verdict, hold_id
from outlast.engine.budget_store import BUDGETS, STATE, BudgetId, change_budget
from outlast.store.commands import UpdateSession, UpdateSessions

ID = "run:run/answer"


def _writes_budget(command) -> bool:
    changes = command.changes if isinstance(command, UpdateSessions) else (command,)
    return any(isinstance(one, UpdateSession) and one.space == BUDGETS for one in changes)


def test_run_that_parks_while_its_use_sees_the_raise_is_resumed(memory_world):
    """Another step ends, and the run is parked, just when a waiting use finds that it fits."""
    spend = budget("answer", usd=1)
    ends = asyncio.Event()

    @step
    async def long() -> None:
        await ends.wait()

    @step
    async def ask() -> None:
        async with spend.use(usd=1):
            await asyncio.sleep(1)

    @workflow
    async def fan_out() -> None:
        await ask()
        await asyncio.gather(long(), ask())

    async def main(app):
        engine = app._open
        execute = engine.writer.execute

        async def answer_late(command, **options):
            answer = await execute(command, **options)
            if _writes_budget(command) and not ends.is_set():
                ends.set()
                await asyncio.sleep(1)
            return answer

        await app.submit(fan_out(), id="run")
        await asyncio.sleep(20)
        await app.raise_budget(ID, {"usd": 2})
        engine.writer.execute = answer_late
        async with asyncio.timeout(1e5):
            await until_done(app, "run")
        return await spent_of(app, ID)

    assert worker(memory_world, fan_out).do(main) == {"usd": 2}


def test_use_that_fits_does_not_renew_the_question_of_one_that_waits(memory_world):
    """The run may be parked before the use that waits has seen the raise."""
    one = Cost.of({"usd": 1})

    async def main(app):
        client = app._open.client
        queue = BudgetQueue(BudgetId("answer", "run", "run"), client, app._open.background)
        first, waits, later = (
            Reservation(hold_id("run", 1, number), one, dict(one), ()) for number in range(3)
        )
        await queue.reserve(first)
        await queue.settle(first.id, one)
        assert await queue.reserve(waits) is Verdict.EXHAUSTED
        await change_budget(client, ID, lambda state: state.raise_to({"usd": Decimal(3)}, None))
        assert await queue.reserve(later) is Verdict.GRANTED
        row = app.store.session(ID, BUDGETS)
        return set(BudgetState.read(row.fields[STATE]).answered)

    assert memory_world.do(main) == {"run"}


def test_frozen_process_of_a_pruned_run_does_not_reset_the_budget_of_the_next(memory_world):
    """A run with the same id was submitted while the process was frozen."""
    one, limits = Cost.of({"usd": 1}), dict(Cost.of({"usd": 2}))
    several = spender(budget("answer", usd=2), [])

    async def seed_of_run(app):
        return app.store.run("run").seed

    async def prune(app):
        return await app.prune(0)

    async def reserve_late(app):
        client = app._open.client
        queue = BudgetQueue(BudgetId("answer", "run", "run", seed), client, app._open.background)
        return await queue.reserve(Reservation(hold_id("run", 1, 99), one, limits, ()))

    memory_world.run(several("a"), id="run")
    seed = memory_world.do(seed_of_run)
    memory_world.clock.advance(10)
    assert memory_world.do(prune) == 1
    memory_world.run(several("ab"), id="run")
    assert memory_world.do(reserve_late) is Verdict.EXHAUSTED
    assert spent(memory_world, ID) == {"usd": 2}


def test_limit_that_is_reached_must_be_exceeded_for_a_use_that_reserves_nothing_of_it(memory_world):
    spend = budget("answer", usd=1, tokens=10)

    @step
    async def ask(**amounts: float) -> None:
        async with spend.use(**amounts):
            pass

    @workflow
    async def both() -> None:
        await ask(usd=1)
        await ask(tokens=1)

    async def main(app):
        await app.submit(both(), id="run")
        await parked(app, "run")
        with pytest.raises(SettingsError, match="Set at least: more than usd=1"):
            await app.decide("run", "answer", limit={"usd": 1})
        await app.decide("run", "answer", limit={"usd": 1.01})
        await until_done(app, "run")

    worker(memory_world, both).do(main)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_use_raises_when_its_program_closes_and_does_not_wait_forever(memory_world, turns):
    one, limits = Cost.of({"usd": 1}), dict(Cost.of({"usd": 2}))

    async def main(app):
        client, background = app._open.client, app._open.background
        queue = BudgetQueue(BudgetId("answer", "run", "run"), client, background)

        async def reserve(number: int) -> Verdict:
            return await queue.reserve(Reservation(hold_id("run", 1, number), one, limits, ()))

        waits = asyncio.create_task(reserve(1))
        while queue._task is None:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        # The end of a program cancels its tasks.
        queue._task.cancel()
        for use in (waits, reserve(2)):
            with pytest.raises(StoreUnavailable, match="was closed"):
                await use

    memory_world.do(main)


def test_process_forgets_the_budgets_of_runs_that_have_ended(memory_world):
    several = spender(budget("answer", usd=5), [])

    async def main(app):
        for number in range(3):
            await (await app.submit(several("ab"), id=f"r{number}")).result()
        await asyncio.sleep(1)
        gc.collect()
        return len(app._open.budgets._queues)

    assert worker(memory_world, several).do(main) == 0


def test_settlement_that_could_not_be_written_is_written_with_the_next_use(memory_world):
    """Nothing uses the budget in between."""
    one, limits = Cost.of({"usd": 1}), dict(Cost.of({"usd": 5}))
    answer = BudgetId("answer", "run", "run")

    async def refuse(command, **options):
        raise StoreUnavailable("The store is away.")

    async def main(app):
        engine = app._open
        first, second = (
            Reservation(hold_id("run", 1, number), one, limits, ()) for number in range(2)
        )
        await engine.budgets.get(answer).reserve(first)
        execute, engine.writer.execute = engine.writer.execute, refuse
        with pytest.raises(StoreUnavailable, match="is away"):
            await engine.budgets.get(answer).settle(first.id, Cost.of({"usd": 0.25}))
        engine.writer.execute = execute
        gc.collect()
        await engine.budgets.get(answer).reserve(second)
        return await spent_of(app, ID)

    assert memory_world.do(main) == {"usd": 0.25}


def test_wait_for_a_person_does_not_use_up_the_time_outs_around_it(memory_world):
    """The run is parked long after the time-outs of the steps that wait in place."""
    spend = budget("answer", usd=1)

    @step
    async def long() -> None:
        await asyncio.sleep(60)

    @step(timeout=10)
    async def ask(number: int) -> int:
        async with spend.use(usd=1):
            return number

    @step(timeout=20)
    async def several() -> list[int]:
        return list(await asyncio.gather(ask(2), ask(3)))

    @workflow
    async def fan_out() -> list[int]:
        await ask(1)
        return (await asyncio.gather(long(), several()))[1]

    async def main(app):
        run = await app.submit(fan_out(), id="run")
        await asyncio.sleep(50)
        assert (await run.info()).status == "running"
        await parked(app, "run")
        await app.raise_budget(ID, {"usd": 3})
        return await run.result()

    assert worker(memory_world, fan_out).do(main) == [2, 3]


def test_time_out_continues_after_the_raise(memory_world):
    spend = budget("answer", usd=1)

    @step
    async def long() -> None:
        await asyncio.sleep(60)

    @step
    async def ask(seconds: float) -> None:
        async with spend.use(usd=1):
            await asyncio.sleep(seconds)

    @step(timeout=20)
    async def slow() -> None:
        await ask(25)

    @workflow
    async def fan_out() -> None:
        await ask(1)
        await asyncio.gather(long(), slow())

    async def main(app):
        run = await app.submit(fan_out(), id="run")
        await asyncio.sleep(30)
        await app.raise_budget(ID, {"usd": 2})
        await run.result()

    with pytest.raises(StepTimeout, match="longer than its timeout of 20"):
        worker(memory_world, fan_out).do(main)


def test_items_without_a_budget_end_before_the_run_is_parked(memory_world):
    spend = budget("answer", usd=1)
    ended: list[str] = []

    async def item(name: str) -> None:
        if name == "long":
            await asyncio.sleep(30)
        else:
            async with spend.use(usd=2):
                pass
        ended.append(name)

    @workflow
    async def items() -> None:
        await outlast.map(item, ["paid", "long"], concurrency=2)

    async def main(app):
        await app.submit(items(), id="run")
        await parked(app, "run")
        assert ended == ["long"]
        await app.raise_budget(ID, {"usd": 3})
        await until_done(app, "run")
        return ended

    assert worker(memory_world, items).do(main) == ["long", "paid"]


def test_nested_steps_without_a_budget_end_before_the_run_is_parked(memory_world):
    spend = budget("answer", usd=1)
    ended: list[str] = []

    @step
    async def fetch() -> None:
        await asyncio.sleep(30)
        ended.append("fetch")

    @step
    async def ask() -> None:
        async with spend.use(usd=2):
            ended.append("ask")

    @step
    async def both() -> None:
        await asyncio.gather(fetch(), ask())

    @workflow
    async def one() -> None:
        await both()

    async def main(app):
        await app.submit(one(), id="run")
        await parked(app, "run")
        assert ended == ["fetch"]
        await app.raise_budget(ID, {"usd": 3})
        await until_done(app, "run")
        return ended

    assert worker(memory_world, one).do(main) == ["fetch", "ask"]


def test_use_that_waits_for_one_that_waits_for_a_person_lets_the_run_be_parked(memory_world):
    first, second = budget("first", usd=2), budget("second", usd=1)

    @step
    async def both() -> None:
        async with first.use(usd=1), second.use(usd=1):
            pass

    @step
    async def ask() -> None:
        async with first.use(usd=1):
            pass

    @step
    async def outer() -> None:
        await asyncio.sleep(1)
        await ask()

    @workflow
    async def fan_out() -> None:
        await both()
        await asyncio.gather(both(), outer())

    async def main(app):
        await app.submit(fan_out(), id="run")
        info = await parked(app, "run")
        await app.raise_budget("run:run/second", {"usd": 2})
        # What the step had reserved of the first budget counts.
        await asyncio.sleep(20)
        await parked(app, "run")
        await app.raise_budget("run:run/first", {"usd": 5})
        await until_done(app, "run")
        return info.reason

    assert "run:run/second" in worker(memory_world, fan_out).do(main)
