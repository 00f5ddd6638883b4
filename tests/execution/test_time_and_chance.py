"""now(), uuid(), random() and sleep() give the same values on replay."""

import asyncio
from datetime import UTC, datetime

import pytest

from outlast import now, random, sleep, step, uuid, workflow


@step
async def work(seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)


def test_now_is_the_same_in_every_life_and_never_goes_back(world):
    seen: list[list[datetime]] = []

    @workflow
    async def one() -> None:
        times = []
        seen.append(times)
        for n in range(5):
            times.append(now())
            await (work(7) if n % 2 else sleep(3))
        times.append(now())

    world.die(one(), after=12)
    world.run(one())
    world.replays(one())
    died, live, replayed = seen
    assert live == replayed
    assert died == live[: len(died)]
    assert live == sorted(live)
    assert all(time.tzinfo is UTC for time in live)


def test_now_stands_still_between_two_entries(world):
    @workflow
    async def one() -> bool:
        first = now()
        sum(range(200_000))
        await asyncio.sleep(0)
        return first == now()

    assert world.run(one())


def test_now_advances_by_the_duration_of_a_step(world):
    @workflow
    async def one() -> float:
        start = now()
        await work(60)
        return (now() - start).total_seconds()

    assert world.run(one()) == pytest.approx(60, abs=0.1)


def test_now_never_goes_back_though_the_stores_clock_does(world):
    seen = []

    @workflow
    async def one() -> None:
        for _ in range(3):
            seen.append(now())
            await work(1)

    world.die(one(), after=1.5)
    world.clock.start -= 3600
    world.clock.elapsed += 60  # past any lease
    seen.clear()
    world.run(one())
    assert seen == sorted(seen)


def test_random_values_replay_and_differ_between_runs_and_calls(world):
    seen = []

    @workflow
    async def one() -> list:
        async def branch() -> list:
            return [str(uuid()), random()]

        drawn = [
            str(uuid()),
            str(uuid()),
            random(),
            random(),
            *await asyncio.gather(branch(), branch()),
        ]
        await work()
        drawn.append(random())
        seen.append(drawn)
        return drawn

    first = world.run(one())
    assert world.replays(one()) == first
    assert world.run(one(), id="another") != first
    flat = [str(item) for part in first for item in (part if isinstance(part, list) else [part])]
    assert len(set(flat)) == len(flat)
    assert all(0 <= number < 1 for number in first if isinstance(number, float))


def test_a_uuid_is_a_proper_random_uuid(world):
    @workflow
    async def one() -> list[int]:
        made = [uuid() for _ in range(100)]
        assert len(set(made)) == 100
        return sorted({value.version for value in made})

    assert world.run(one()) == [4]


def test_random_values_are_evenly_distributed(world):
    @workflow
    async def one() -> float:
        return sum(random() for _ in range(2000)) / 2000

    assert world.run(one()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("snooze", [sleep, asyncio.sleep], ids=["outlast", "asyncio"])
def test_sleep_continues_across_restarts(world, snooze):
    @workflow
    async def one() -> str:
        await snooze(1000)
        return "awake"

    world.die(one(), after=300, gap=300)
    assert world.run(one()) == "awake"
    assert world.clock.elapsed == pytest.approx(1000, abs=1)
    assert [kind for kind in world.kinds() if kind != "death"] == ["fired"]


def test_sleep_that_ended_between_processes_returns_at_once(world):
    @workflow
    async def one() -> float:
        before = now()
        await sleep(100)
        return (now() - before).total_seconds()

    world.die(one(), after=10, gap=5000)
    before = world.clock.elapsed
    assert world.run(one()) >= 100
    assert world.clock.elapsed - before < 5


def test_timers_that_came_due_meanwhile_fire_in_the_order_of_their_times(world):
    @workflow
    async def one() -> list[int]:
        order: list[int] = []

        async def after(seconds: int) -> None:
            await sleep(seconds)
            order.append(seconds)

        await asyncio.gather(*[after(seconds) for seconds in (30, 10, 50, 20, 40)])
        return order

    world.die(one(), after=15, gap=1000)
    assert world.run(one()) == [10, 20, 30, 40, 50]
    assert world.replays(one()) == [10, 20, 30, 40, 50]


def test_zero_and_negative_sleeps_return_at_once(world):
    @workflow
    async def one() -> str:
        await sleep(0)
        await sleep(-5)
        await asyncio.sleep(0)
        return "awake"

    assert world.run(one()) == "awake"
    assert world.replays(one()) == "awake"


def test_a_sleep_of_years_is_slept_in_no_time_on_the_virtual_clock(world):
    @workflow
    async def one() -> str:
        await sleep(5e6)
        return "awake"

    assert world.run(one()) == "awake"


def test_a_periodic_workflow_does_not_drift_by_replay(world):
    @workflow
    async def one() -> list[int]:
        start = now()
        ticks = []
        for _ in range(10):
            await sleep(60)
            ticks.append(round((now() - start).total_seconds()))
        return ticks

    world.die(one(), after=330)
    assert world.run(one()) == [60 * n for n in range(1, 11)]


def test_loop_time_is_the_runs_time(world):
    seen = []

    @workflow
    async def one() -> None:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await sleep(10)
        times.append(loop.time())
        seen.append(times)

    world.run(one())
    world.replays(one())
    assert seen[0] == seen[1]
    assert seen[0][1] - seen[0][0] == pytest.approx(10, abs=0.1)
