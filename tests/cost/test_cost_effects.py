"""Costs of effects, and of effects that were undone."""

import asyncio

import pytest

from outlast import current, effect, step, workflow
from outlast.codec.cost import Cost
from outlast.execution.run_cost import RunCost


class Refused(Exception):
    pass


def costs(world) -> list[tuple[str, str, int]]:
    return [
        (entry.kind, entry.key, Cost.read(entry.cost).document()["tokens"])
        for entry in world.journal()
        if entry.cost is not None
    ]


def account(world) -> tuple[int, int, int]:
    """Tokens spent, saved, kept."""
    found = RunCost(world.journal())
    return tuple(
        cost.document().get("tokens", 0) for cost in (found.spent, found.saved, found.kept)
    )  # type: ignore[return-value]


def test_effect_records_the_cost_of_its_outcome_and_of_refused_acts(world):
    acts = []

    @effect(timeout=10, retries=2, backoff=1, failed_on=(Refused,))
    async def post() -> str:
        acts.append(1)
        current().cost(tokens=10 * len(acts))
        if len(acts) < 3:
            raise Refused
        return "posted"

    @workflow
    async def one() -> str:
        return await post()

    assert world.run(one()) == "posted"
    assert costs(world) == [
        ("attempt", "post#1", 10),
        ("attempt", "post#1", 20),
        ("step", "post#1", 30),
    ]
    assert account(world) == (60, 0, 60)


def test_cost_of_an_effect_that_died_is_not_recorded(world):
    acts = []

    @effect(timeout=10, idempotent=True)
    async def post() -> str:
        acts.append(1)
        current().cost(tokens=10)
        await asyncio.sleep(5)
        return "posted"

    @step
    async def model() -> None:
        current().cost(tokens=1)

    @workflow
    async def one() -> str:
        await model()
        return await post()

    world.die(one(), after=2)
    assert world.run(one()) == "posted"
    assert len(acts) == 2
    assert account(world) == (11, 1, 11)


def test_effect_undone_and_retried_costs_again(world):
    fails = [True]

    @effect(timeout=10)
    async def post() -> str:
        current().cost(tokens=10)
        return "posted"

    @post.compensate
    async def take_back(posted: str) -> None:
        current().cost(tokens=1)

    @step
    async def model() -> None:
        current().cost(tokens=100)

    @workflow
    async def one() -> str:
        await model()
        posted = await post()
        if fails[0]:
            raise ValueError("no")
        return posted

    with pytest.raises(ValueError, match="no"):
        world.run(one())
    assert account(world) == (111, 0, 111)
    fails.clear()
    fails.append(False)
    world.do(lambda app: app.retry("run"))
    assert account(world) == (111, 0, 100)
    assert world.run(one()) == "posted"
    assert account(world) == (121, 0, 110)
