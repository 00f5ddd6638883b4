"""A run's time-out counts across restarts."""

import asyncio

import pytest

from outlast import RunTimeout, step, workflow

broken: set[str] = set()
done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    broken.clear()
    done.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    if label in broken:
        raise ValueError(label)
    return label


def test_a_run_that_takes_too_long_is_a_run_timeout(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    with pytest.raises(RunTimeout) as caught:
        world.run(one())
    assert isinstance(caught.value, TimeoutError)
    assert str(caught.value) == f"run {caught.value.id!r} took longer than its timeout of 60 s"
    assert world.status() == "failed"
    assert world.clock.elapsed == pytest.approx(60, abs=1)


def test_the_time_of_a_run_counts_from_its_first_start_over_all_lives(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    world.die(one(), after=40)
    world.die(one(), after=10)
    with pytest.raises(RunTimeout):
        world.run(one())
    assert world.clock.elapsed == pytest.approx(60, abs=2)


def test_run_that_timed_out_between_processes_starts_nothing(world):
    @workflow(timeout=60)
    async def one() -> None:
        await work("slow", 1000)

    world.die(one(), after=10, gap=500)
    done.clear()
    with pytest.raises(RunTimeout):
        world.run(one())
    assert done == []
