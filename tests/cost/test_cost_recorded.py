"""The cost that a step reports is recorded with it."""

import asyncio
import threading

import pytest

import outlast.sync
from outlast import Outlast, current, step, workflow
from outlast.codec.cost import Cost
from outlast.execution.run_cost import RunCost
from support.waiting import WAIT_SECONDS


def costs(world, id: str = "run") -> list[tuple[str, dict]]:
    """The entries that say what was spent."""
    return [
        (entry.kind, Cost.read(entry.cost).document())
        for entry in world.journal(id)
        if entry.cost is not None
    ]


def account(world, id: str = "run") -> tuple[dict, dict, dict]:
    found = RunCost(world.journal(id))
    return found.spent.document(), found.saved.document(), found.kept.document()


@step
async def model(tokens: int, seconds: float = 0.0) -> int:
    current().cost(tokens=tokens, usd=tokens / 1000)
    await asyncio.sleep(seconds)
    return tokens


@step
async def free() -> None:
    pass


def test_step_without_costs_records_none(world):
    @workflow
    async def one() -> None:
        await free()
        await model(0)

    world.run(one())
    assert [entry.cost for entry in world.journal()] == [None, None]
    assert account(world) == ({}, {}, {})


def test_program_reads_costs_from_the_journal(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3)

    async def main(app):
        assert await (await app.start(one(), id="run")).result() == 23
        return [entry.cost for entry in await app.journal("run")]

    assert world.do(main) == ['{"tokens": 20, "usd": 0.02}', '{"tokens": 3, "usd": 0.003}']


def test_several_calls_in_one_step_add_up(world):
    @step
    async def stream() -> None:
        for _ in range(10):
            current().cost(usd=0.1)
            await asyncio.sleep(0.1)
        current().cost(tokens=7, pages=2.5)

    @workflow
    async def one() -> None:
        await stream()

    world.run(one())
    assert costs(world) == [("step", {"usd": 1, "tokens": 7, "pages": 2.5})]


def test_failed_step_records_its_cost(world):
    @step
    async def broken() -> None:
        current().cost(tokens=5)
        raise ValueError("no")

    @workflow
    async def one() -> None:
        await broken()

    with pytest.raises(ValueError, match="no"):
        world.run(one())
    assert costs(world) == [("step", {"tokens": 5})]


def test_each_failed_attempt_records_its_cost(world):
    @step(retries=3, backoff=1)
    async def flaky() -> str:
        attempt = current().attempt
        if attempt != 2:
            current().cost(tokens=attempt)
        if attempt < 4:
            raise OSError
        return "ok"

    @workflow
    async def one() -> str:
        return await flaky()

    assert world.run(one()) == "ok"
    assert world.kinds() == ["attempt", "attempt", "attempt", "step"]
    assert costs(world) == [
        ("attempt", {"tokens": 1}),
        ("attempt", {"tokens": 3}),
        ("step", {"tokens": 4}),
    ]
    assert account(world)[0] == {"tokens": 8}


def test_cancelled_step_records_its_cost_until_then(world):
    @workflow
    async def one() -> str:
        try:
            await asyncio.wait_for(model(9, 100), 1)
        except TimeoutError:
            return "late"
        return "in time"

    assert world.run(one()) == "late"
    assert costs(world) == [("step", {"tokens": 9, "usd": 0.009})]


def test_sync_steps_and_workflows_record_costs(world):
    @outlast.sync.step
    def model() -> None:
        outlast.sync.current().cost(tokens=4)

    @outlast.sync.step
    def outer() -> None:
        outlast.sync.current().cost(tokens=1)
        model()

    @outlast.sync.workflow
    def one() -> None:
        model()
        outer()

    world.run(one())
    assert costs(world) == [
        ("step", {"tokens": 4}),
        ("inner", {"tokens": 4}),
        ("step", {"tokens": 1}),
    ]


def test_sync_step_that_timed_out_records_its_cost_until_then(address):
    def outcome(timeout: float) -> tuple[str, list[str | None]]:
        go_on = threading.Event()

        @step(timeout=timeout)
        def slow() -> None:
            current().cost(tokens=2)
            go_on.wait(WAIT_SECONDS)
            current().cost(tokens=100)  # after the time-out: not recorded

        @workflow(name=f"within {timeout} s")
        async def one() -> str:
            try:
                await slow.aio()
            except TimeoutError:
                return "late"
            return "in time"

        async def main() -> tuple[str, list[str | None]]:
            async with Outlast(address) as app:
                id = f"run-{timeout}"
                result = await (await app.start(one(), id=id)).result()
                go_on.set()
                return result, [entry.cost for entry in await app.journal(id)]

        return asyncio.run(main())

    # On a busy machine a step may time out before its thread has executed the first line.
    assert ("late", ['{"tokens": 2}']) in map(outcome, (0.2, 2, 10))


# -- steps in steps


def test_inner_and_outer_step_each_record_their_own_cost(world):
    @step
    async def outer() -> int:
        current().cost(tokens=1)
        return await model(10) + await model(20)

    @workflow
    async def one() -> int:
        return await outer()

    assert world.run(one()) == 30
    assert costs(world) == [
        ("inner", {"tokens": 10, "usd": 0.01}),
        ("inner", {"tokens": 20, "usd": 0.02}),
        ("step", {"tokens": 1}),
    ]


def test_attempts_of_an_inner_step_count_for_it_and_failures_for_the_outer(world):
    left = [3]

    @step(retries=1, backoff=1)
    async def flaky() -> None:
        current().cost(tokens=100)
        left[0] -= 1
        if left[0] >= 0:
            raise OSError

    @step(retries=1, backoff=1)
    async def outer() -> None:
        current().cost(tokens=1)
        await flaky()

    @workflow
    async def one() -> None:
        await outer()

    world.run(one())
    assert costs(world) == [
        ("attempt", {"tokens": 201}),
        ("inner", {"tokens": 200}),
        ("step", {"tokens": 1}),
    ]


def test_reused_inner_result_is_not_paid_again(world):
    @step
    async def outer() -> int:
        found = await model(10)
        await asyncio.sleep(100)
        return found

    @workflow
    async def one() -> int:
        return await outer()

    world.die(one(), after=50)
    assert world.run(one()) == 10
    assert costs(world) == [("inner", {"tokens": 10, "usd": 0.01})]
    assert account(world)[1] == {"tokens": 10, "usd": 0.01}


def test_items_of_a_map_count_for_its_step(world):
    async def one_item(n: int) -> int:
        current().cost(calls=1)
        return await model(n)

    @workflow
    async def one() -> dict[str, int]:
        return await outlast.map(one_item, [1, 2, 3], concurrency=2)

    assert world.run(one()) == {"1": 1, "2": 2, "3": 3}
    assert sorted(kind for kind, _ in costs(world)) == ["inner", "inner", "inner", "step"]
    assert costs(world)[-1] == ("step", {"calls": 3})
    assert account(world)[0] == {"tokens": 6, "usd": 0.006, "calls": 3}


broken: set[str] = set()


def test_a_cost_on_record_that_cannot_be_read_ends_no_run(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3, 10)

    world.die(one(), after=5)
    world.store._db.execute("UPDATE entries SET cost = 'not JSON' WHERE key = 'model#1'")
    assert world.run(one()) == 23
    assert account(world)[0] == {"tokens": 3, "usd": 0.003}
