"""Exhausted budgets: their runs are parked with a question, and a person lets them continue."""

from __future__ import annotations

import asyncio

import pytest
from budget_tools import parked, spender, spent_of, worker

import outlast
import outlast.sync
from outlast import (
    SettingsError,
    UnknownEffect,
    budget,
    current,
    limiter,
    step,
    workflow,
)
from outlast.engine.budget_store import BUDGETS, STATE
from outlast.errors.reasons import EXHAUSTED
from outlast.store.commands import UpdateSession


def test_exhausted_budget_parks_the_run_until_a_person_raises_it(memory_world):
    calls: list[str] = []
    several = spender(budget("answer", usd=2), calls)

    async def main(app):
        run = await app.submit(several("abc"), id="r")
        info = await parked(app, "r")
        assert calls == ["a", "b"]
        assert info.reason.startswith(EXHAUSTED)
        assert "2 of 2 usd are spent, and the next use reserves 1" in info.reason
        assert "outlast decide r budget:answer --limit usd=AMOUNT" in info.reason
        await app.decide("r", "budget:answer", limit={"usd": 3}, by="olga")
        return await run.result(), [entry.kind for entry in await app.journal("r")]

    result, kinds = worker(memory_world, several).do(main)
    assert result == "abc"
    assert calls == ["a", "b", "c"]
    assert kinds.count("resume") == 1


def test_reservation_of_all_names_must_fit(memory_world):
    spend = budget("answer", usd=5, tokens=100)

    @step
    async def ask(tokens: int) -> dict[str, float]:
        async with spend.use(usd=0.1, tokens=tokens) as used:
            used.actual(tokens=tokens)
        return current().budget_left

    @workflow
    async def twice() -> list[dict[str, float]]:
        return [await ask(60), await ask(60)]

    async def main(app):
        run = await app.submit(twice(), id="r")
        info = await parked(app, "r")
        assert "60 of 100 tokens are spent, and the next use reserves 60" in info.reason
        await app.decide("r", "budget:answer", limit={"tokens": 120})
        return await run.result()

    assert worker(memory_world, twice).do(main) == [
        {"usd": 4.9, "tokens": 40},
        {"usd": 4.8, "tokens": 0},
    ]


def test_runs_of_a_key_share_a_budget_with_the_children_of_each(memory_world):
    calls: list[str] = []
    several = spender(budget("customer", usd=3, per="key"), calls)

    @workflow
    async def top(names: str) -> str:
        return await several(names)

    async def main(app):
        first = await app.submit(top("ab"), id="r1", key="c-7")
        await first.result()
        second = await app.submit(top("cd"), id="r2", key="c-7")
        other = await app.submit(top("ef"), id="r3", key="c-8")
        assert await other.result() == "ef"
        (child,) = await app.runs(status="parked")
        assert child.parent == "r2"
        info = await app.raise_budget("key:c-7/customer", {"usd": 4}, by="olga")
        assert (info.key, info.limits, info.raised_by) == ("c-7", {"usd": 4}, "olga")
        return await second.result()

    assert worker(memory_world, top, several).do(main) == "cd"


def test_exhausted_use_parks_only_when_the_other_steps_have_ended(memory_world):
    spend = budget("answer", usd=2)

    @step
    async def ask(number: int) -> int:
        async with spend.use(usd=1):
            await asyncio.sleep(30 * number)
        return number

    @workflow
    async def fan_out() -> list[int]:
        return list(await asyncio.gather(*(ask(number) for number in range(3))))

    async def main(app):
        run = await app.submit(fan_out(), id="r")
        await asyncio.sleep(20)
        (info,) = await app.runs(prefix="r")
        assert info.status == "running"
        await parked(app, "r")
        await app.decide("r", "budget:answer", limit={"usd": 3})
        return await run.result(), await spent_of(app, "run:r/answer")

    assert worker(memory_world, fan_out).do(main) == ([0, 1, 2], {"usd": 3})


def test_budget_raised_before_the_run_is_parked_lets_it_continue_at_once(memory_world):
    spend = budget("answer", usd=1)

    @step
    async def long() -> None:
        await asyncio.sleep(60)

    @step
    async def ask(number: int) -> float:
        async with spend.use(usd=1):
            return memory_world.clock.elapsed

    @workflow
    async def fan_out() -> float:
        await ask(1)
        began = memory_world.clock.elapsed
        _, asked = await asyncio.gather(long(), ask(2))
        return asked - began

    async def main(app):
        run = await app.submit(fan_out(), id="r")
        await asyncio.sleep(20)
        await app.raise_budget("run:r/answer", {"usd": 2})
        return await run.result(), [entry.kind for entry in await app.journal("r")]

    seconds, kinds = worker(memory_world, fan_out).do(main)
    assert 20 <= seconds < 30
    assert "resume" not in kinds


def test_inner_results_stay_when_the_step_repeats_after_the_raise(memory_world):
    calls: list[str] = []
    spend = budget("answer", usd=2)

    @step
    async def ask(name: str) -> str:
        async with spend.use(usd=1):
            calls.append(name)
        return name

    @step
    async def several(names: str) -> str:
        return "".join([await ask(name) for name in names])

    @workflow
    async def one() -> str:
        return await several("abc")

    async def main(app):
        run = await app.submit(one(), id="r")
        await parked(app, "r")
        await app.decide("r", "answer", limit={"usd": 3})
        return await run.result()

    assert worker(memory_world, one).do(main) == "abc"
    assert calls == ["a", "b", "c"]


def test_parallel_calls_of_one_step_settle_before_the_run_is_parked(memory_world):
    calls: list[int] = []
    spend = budget("answer", usd=2)

    @step
    async def ask(number: int) -> int:
        async with spend.use(usd=1) as used:
            await asyncio.sleep(10)
            used.actual(usd=0.75)
            calls.append(number)
        return number

    @step
    async def all_of() -> list[int]:
        return list(await asyncio.gather(*(ask(number) for number in range(3))))

    @workflow
    async def one() -> list[int]:
        return await all_of()

    async def main(app):
        run = await app.submit(one(), id="r")
        await parked(app, "r")
        assert sorted(calls) == [0, 1]
        await app.decide("r", "answer", limit={"usd": 3})
        return await run.result(), await spent_of(app, "run:r/answer")

    assert worker(memory_world, one).do(main) == ([0, 1, 2], {"usd": 2.25})


def test_items_of_a_map_park_the_run_together(memory_world):
    calls: list[int] = []
    spend = budget("answer", usd=2)

    async def ask(number: int) -> int:
        async with spend.use(usd=1):
            calls.append(number)
        return number

    @workflow
    async def one() -> int:
        return len(await outlast.map(ask, range(4), concurrency=2))

    async def main(app):
        run = await app.submit(one(), id="r")
        await parked(app, "r")
        assert len(calls) == 2
        await app.decide("r", "answer", limit={"usd": 4})
        return await run.result()

    assert worker(memory_world, one).do(main) == 4
    assert sorted(calls) == [0, 1, 2, 3]


def test_sync_step_parks_its_run_too(memory_world):
    calls: list[str] = []
    spend = outlast.sync.budget("answer", usd=2)

    @outlast.sync.step(retries=3)
    def ask(name: str) -> int:
        with spend.use(usd=1) as used:
            calls.append(name)
            used.actual(usd=1)
        return current().attempt

    @outlast.sync.step(retries=3)
    def both() -> list[int]:
        return [ask("b"), ask("c")]

    @workflow
    async def one() -> list[int]:
        return [await ask.aio("a"), *await both.aio()]

    async def main(app):
        run = await app.submit(one(), id="r")
        await parked(app, "r")
        assert calls == ["a", "b"]
        await app.decide("r", "answer", limit={"usd": 3})
        return await run.result()

    assert worker(memory_world, one).do(main) == [1, 1, 1]
    assert calls == ["a", "b", "c"]


def test_use_within_a_limiter_parks_the_run(memory_world):
    spend, model = budget("answer", usd=1), limiter("model", requests="100/1m")
    calls: list[int] = []

    @step
    async def ask(number: int) -> None:
        async with model.use(), spend.use(usd=1):
            calls.append(number)

    @workflow
    async def two() -> None:
        await ask(1)
        await ask(2)

    async def main(app):
        run = await app.submit(two(), id="r")
        await parked(app, "r")
        await app.decide("r", "answer", limit={"usd": 2})
        await run.result()

    worker(memory_world, two).do(main)
    assert calls == [1, 2]


def test_drain_parks_a_run_whose_budget_is_exhausted(file_world):
    several = spender(budget("answer", usd=1), [])

    @step
    async def long() -> None:
        await asyncio.sleep(600)

    @workflow
    async def both() -> None:
        await asyncio.gather(long(), several("ab"))

    async def main(app):
        run = await app.submit(several("ab"), id="r")
        await parked(app, "r")
        del run
        await app.drain("a deploy")
        (info,) = await app.runs(prefix="r")
        return info.status

    assert worker(file_world, several).do(main) == "parked"


def test_hook_is_called_when_a_budget_parks_a_run(memory_world):
    told: list[tuple[str, bool]] = []
    several = spender(budget("answer", usd=1), [])

    async def main(app):
        await app.submit(several("ab"), id="r")
        await parked(app, "r")
        await asyncio.sleep(1)

    hook = lambda info: told.append((info.id, info.reason.startswith(EXHAUSTED)))  # noqa: E731
    worker(memory_world, several, on_parked=hook).do(main)
    assert told == [("r", True)]


def test_raise_that_leaves_no_room_is_refused(memory_world):
    several = spender(budget("answer", usd=2), [])

    async def main(app):
        await app.submit(several("abc"), id="r")
        await parked(app, "r")
        with pytest.raises(SettingsError, match="Set at least: usd=3"):
            await app.decide("r", "answer", limit={"usd": 2.5})
        with pytest.raises(SettingsError, match="no limit 'tokens', only: usd"):
            await app.decide("r", "answer", limit={"tokens": 5})
        with pytest.raises(SettingsError, match="is for a budget"):
            await app.decide("r", "answer", limit={"usd": 5}, did_not=True)
        with pytest.raises(SettingsError, match="is a budget, not an effect"):
            await app.decide("r", "budget:answer", did_not=True)
        with pytest.raises(UnknownEffect, match="budget:run:r/answer"):
            await app.decide("r", "wrong", limit={"usd": 5})
        with pytest.raises(SettingsError, match="no budget 'run:x/answer'"):
            await app.raise_budget("run:x/answer", {"usd": 5})
        (info,) = await app.budgets()
        return info

    info = worker(memory_world, several).do(main)
    assert (info.limits, info.waiting, info.left) == ({"usd": 2}, ("r",), {"usd": 0})


def test_repeated_decision_changes_nothing(memory_world):
    several = spender(budget("answer", usd=2), [])

    async def main(app):
        run = await app.submit(several("abc"), id="r")
        await parked(app, "r")
        for _ in range(3):
            await app.decide("r", "answer", limit={"usd": 3})
        assert await run.result() == "abc"
        await app.decide("r", "answer", limit={"usd": 3})
        return [entry.kind for entry in await app.journal("r")].count("resume")

    assert worker(memory_world, several).do(main) == 1


def test_damaged_budget_counts_as_used_up_until_a_person_sets_it(memory_world, caplog):
    calls: list[str] = []
    several = spender(budget("answer", usd=5), calls)

    async def main(app):
        damaged = UpdateSession("run:r/answer", "t", {STATE: '{"held":7}'}, space=BUDGETS)
        await app._open.writer.execute(damaged)
        run = await app.submit(several("a"), id="r")
        await parked(app, "r")
        assert calls == []
        await app.decide("r", "answer", limit={"usd": 6})
        return await run.result()

    assert worker(memory_world, several).do(main) == "a"
    assert "is damaged" in caplog.text
