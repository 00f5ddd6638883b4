"""What a step says that it cost is recorded with it, and a replay spends none of it again."""

import asyncio
import threading

import pytest

import outlast.sync
from outlast import Outlast, current, step, workflow
from outlast.replay.account import Account
from outlast.values.cost import Cost


def costs(world, id: str = "run") -> list[tuple[str, dict]]:
    """The entries that say what was spent."""
    return [
        (entry.kind, Cost.read(entry.cost).document())
        for entry in world.journal(id)
        if entry.cost is not None
    ]


def account(world, id: str = "run") -> tuple[dict, dict, dict]:
    found = Account(world.journal(id))
    return found.spent.document(), found.saved.document(), found.kept.document()


@step
async def model(tokens: int, seconds: float = 0.0) -> int:
    current().cost(tokens=tokens, usd=tokens / 1000)
    await asyncio.sleep(seconds)
    return tokens


@step
async def free() -> None:
    pass


def test_a_step_that_says_nothing_has_no_cost(world):
    @workflow
    async def one() -> None:
        await free()
        await model(0)

    world.run(one())
    assert [entry.cost for entry in world.journal()] == [None, None]
    assert account(world) == ({}, {}, {})


def test_a_program_reads_it_from_the_journal(world):
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


def test_a_step_that_fails_says_what_it_cost(world):
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


def test_each_failed_attempt_has_its_own(world):
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
    assert costs(world) == [("attempt", {"tokens": 1}), ("attempt", {"tokens": 3}), ("step", {"tokens": 4})]
    assert account(world)[0] == {"tokens": 8}


def test_a_step_that_the_workflow_cancels_says_what_it_cost_until_then(world):
    @workflow
    async def one() -> str:
        try:
            await asyncio.wait_for(model(9, 100), 1)
        except TimeoutError:
            return "late"
        return "in time"

    assert world.run(one()) == "late"
    assert costs(world) == [("step", {"tokens": 9, "usd": 0.009})]


def test_sync_steps_and_sync_workflows_say_it_too(world):
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
    assert costs(world) == [("step", {"tokens": 4}), ("inner", {"tokens": 4}), ("step", {"tokens": 1})]


def test_a_sync_step_that_took_too_long_says_what_it_cost_until_then(address):
    go_on = threading.Event()

    @step(timeout=0.2)
    def slow() -> None:
        current().cost(tokens=2)
        go_on.wait(30)
        current().cost(tokens=100)  # nobody waits for it any more

    @workflow
    async def one() -> str:
        try:
            await slow.aio()
        except TimeoutError:
            return "late"
        return "in time"

    async def main():
        async with Outlast(address) as app:
            result = await (await app.start(one(), id="run")).result()
            go_on.set()
            return result, [entry.cost for entry in await app.journal("run")]

    assert asyncio.run(main()) == ("late", ['{"tokens": 2}'])


# -- steps in steps


def test_a_step_in_a_step_has_its_own_and_the_outer_one_what_it_said_itself(world):
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


def test_all_attempts_of_a_step_in_a_step_are_in_its_entry_and_those_in_vain_in_the_outer_one(world):
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


def test_what_is_used_again_when_the_outer_step_is_redone_is_not_paid_for_again(world):
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


def test_what_items_of_a_map_cost_its_step_does(world):
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


# -- deaths, interruptions, retries


def test_a_replay_spends_nothing_again(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3)

    world.run(one())
    before = world.journal()
    assert world.replays(one()) == 23
    assert world.journal()[: len(before)] == before
    assert account(world)[0] == {"tokens": 23, "usd": 0.023}


def test_what_was_recorded_before_a_death_is_saved_and_what_was_under_way_is_not(world):
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
        results = await asyncio.gather(work("failed", 10, 1), work("later", 100, 5), return_exceptions=True)
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


def test_a_result_that_was_kept_aside_and_is_asked_for_with_other_arguments_is_paid_for_again(world):
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


def test_children_count_for_themselves(world):
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


def test_a_cost_on_record_that_cannot_be_read_ends_no_run(world):
    @workflow
    async def one() -> int:
        return await model(20) + await model(3, 10)

    world.die(one(), after=5)
    world.store._db.execute("UPDATE entries SET cost = 'not JSON' WHERE key = 'model#1'")
    assert world.run(one()) == 23
    assert account(world)[0] == {"tokens": 3, "usd": 0.003}
