"""What was recorded before a death, an interruption or a retry is not paid for again."""

import asyncio

import pytest

from outlast import current, step, workflow
from outlast.execution.run_cost import RunCost


def account(world, id: str = "run") -> tuple[dict, dict, dict]:
    found = RunCost(world.journal(id))
    return found.spent.document(), found.saved.document(), found.kept.document()


@step
async def model(tokens: int, seconds: float = 0.0) -> int:
    current().cost(tokens=tokens, usd=tokens / 1000)
    await asyncio.sleep(seconds)
    return tokens


def test_replay_spends_nothing(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3)

    world.run(one())
    before = world.journal()
    assert world.replays(one()) == 23
    assert world.journal()[: len(before)] == before
    assert account(world)[0] == {"tokens": 23, "usd": 0.023}


def test_recorded_cost_is_saved_by_a_death_and_running_cost_is_not(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3, 10)

    world.die(one(), after=5)
    assert world.run(one()) == 23
    assert account(world) == (
        {"tokens": 23, "usd": 0.023},
        {"tokens": 20, "usd": 0.02},
        {"tokens": 23, "usd": 0.023},
    )


def test_every_death_saves_everything_before_it(world):
    @workflow
    async def one() -> int:
        return sum([await model(n, 10) for n in (1, 2, 3)])

    for after in (15, 12, 5):
        world.die(one(), after=after)
    assert world.run(one()) == 6
    deaths = world.kinds().count("death")
    assert deaths == 3
    assert account(world)[1]["tokens"] == 1 + 3 + 3


def test_failed_attempts_before_a_death_are_not_paid_for_again_either(world):
    @step(retries=5, backoff=10, backoff_max=10)
    async def flaky() -> int:
        current().cost(tokens=10)
        if current().attempt < 3:
            raise OSError
        return current().attempt

    @workflow
    async def one() -> int:
        return await flaky()

    world.die(one(), after=1)
    assert world.run(one()) == 3
    assert account(world)[:2] == ({"tokens": 30}, {"tokens": 10})


def test_an_orderly_end_of_the_process_is_an_interruption_that_saves_too(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3, 10)

    async def main(app):
        await app.start(one(), id="run")
        await asyncio.sleep(5)

    world.do(main)
    world.restart()
    assert world.run(one()) == 23
    assert world.kinds() == ["step", "interruption", "step"]
    assert account(world)[1] == {"tokens": 20, "usd": 0.02}


broken: set[str] = set()


@step
async def work(label: str, tokens: int, seconds: float = 0.0) -> str:
    current().cost(tokens=tokens)
    await asyncio.sleep(seconds)
    if label in broken:
        raise ValueError(label)
    return label


def test_a_retry_pays_again_for_what_failed_and_not_for_what_it_kept(world):
    """`before` stands, `failed` is void, `later` is void and kept aside."""
    broken.add("failed")

    @workflow
    async def one() -> list[str]:
        first = await work("before", 1)
        results = await asyncio.gather(
            work("failed", 10, 1), work("later", 100, 5), return_exceptions=True
        )
        for result in results:
            if isinstance(result, Exception):
                raise result
        return [first, *[str(result) for result in results]]

    with pytest.raises(ValueError, match="failed"):
        world.run(one())
    assert account(world) == ({"tokens": 111}, {}, {"tokens": 111})
    broken.clear()
    world.do(lambda app: app.retry("run"))
    assert account(world) == ({"tokens": 111}, {}, {"tokens": 101})
    world.die(one(), after=0.5)
    assert world.run(one()) == ["before", "failed", "later"]
    assert account(world) == ({"tokens": 121}, {"tokens": 101}, {"tokens": 111})
    assert world.replays(one()) == ["before", "failed", "later"]
    assert account(world)[0] == {"tokens": 121}


def test_a_result_that_was_kept_aside_and_is_asked_for_with_other_arguments_is_paid_for_again(
    world,
):
    broken.add("failed")
    tokens = [100]

    @workflow
    async def one() -> list[str]:
        results = await asyncio.gather(
            work("failed", 10, 1), work("later", tokens[0], 5), return_exceptions=True
        )
        for result in results:
            if isinstance(result, Exception):
                raise result
        return [str(result) for result in results]

    with pytest.raises(ValueError, match="failed"):
        world.run(one())
    broken.clear()
    tokens[0] = 200
    world.do(lambda app: app.retry("run"))
    assert world.run(one()) == ["failed", "later"]
    assert account(world) == ({"tokens": 320}, {}, {"tokens": 210})


def test_attempts_of_a_step_that_failed_are_paid_for_again_by_a_retry(world):
    attempts = []

    @step(retries=1, backoff=1)
    async def flaky() -> str:
        current().cost(tokens=1)
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError
        return "ok"

    @workflow
    async def one() -> str:
        return await flaky()

    with pytest.raises(OSError):
        world.run(one())
    assert account(world) == ({"tokens": 2}, {}, {"tokens": 2})
    world.do(lambda app: app.retry("run"))
    assert account(world) == ({"tokens": 2}, {}, {})
    assert world.run(one()) == "ok"
    assert account(world) == ({"tokens": 3}, {}, {"tokens": 1})


def test_children_record_their_own_costs(world):
    @workflow
    async def child() -> int:
        return await model(5)

    @workflow
    async def one() -> int:
        return await model(1) + await child()

    assert world.run(one()) == 6
    assert account(world)[0] == {"tokens": 1, "usd": 0.001}
    (row,) = world.do(lambda app: app.runs(workflow=child.name))
    assert account(world, row.id)[0] == {"tokens": 5, "usd": 0.005}
