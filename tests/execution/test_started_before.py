"""A step's body can ask whether it has started before."""

import asyncio

import pytest

import outlast.sync
from outlast import NotInRun, started_before, step, workflow
from outlast.testing import crash_everywhere


def test_the_first_attempt_has_not_and_the_next_has(world):
    answers = []

    @step(retries=2, backoff=0)
    async def build() -> None:
        answers.append((await started_before(), await started_before()))
        if len(answers) < 3:
            raise OSError

    @workflow
    async def one() -> None:
        await build()

    world.run(one())
    assert answers == [(False, False), (True, True), (True, True)]


def test_the_next_execution_knows_it(world):
    answers = []

    @step
    async def build() -> None:
        answers.append(await started_before())
        await asyncio.sleep(100)

    @workflow
    async def one() -> None:
        await build()

    world.die(one(), id="r", after=5)
    world.die(one(), id="r", after=5)
    world.run(one(), id="r")
    assert answers == [False, True, True]


def test_each_step_has_its_own_answer(world):
    answers = []

    @step
    async def inner() -> None:
        answers.append(await started_before())

    @step(retries=1, backoff=0)
    async def outer(number: int) -> None:
        answers.append(await started_before())
        await inner.fn()
        if len(answers) < 4:
            raise OSError

    @workflow
    async def one() -> None:
        await outer(1)
        await outer(2)

    world.run(one())
    assert answers == [False, False, True, True, False, False]


def test_a_step_within_a_step_knows_the_earlier_attempts_of_the_outer(world):
    answers = []

    @step
    async def inner() -> None:
        answers.append(await started_before())
        if len(answers) < 3:
            raise OSError

    @step(retries=5, backoff=0)
    async def outer() -> None:
        await inner()

    @workflow
    async def one() -> None:
        await outer()

    world.run(one())
    assert answers == [False, True, True]


def test_started_before_is_durable_before_the_body_goes_on():
    """Whatever the body did after asking, the next execution of the step knows of it."""
    acts: list[str] = []

    @step
    async def act(name: str) -> str:
        before = await started_before()
        acts.append(f"{name} {before}")
        return name

    @workflow
    async def one() -> str:
        return await act("a") + await act("b")

    def check() -> None:
        for name in "ab":
            assert acts.count(f"{name} False") <= 1

    report = crash_everywhere(one(), fresh=acts.clear, check=check)
    assert report.crashes > 4


def test_sync_step_knows_that_it_started_before(world):
    answers = []

    @outlast.sync.step(retries=1, backoff=0)
    def build() -> None:
        answers.append(outlast.sync.started_before())
        if len(answers) < 2:
            raise OSError

    @outlast.sync.workflow
    def one() -> None:
        build()

    world.run(one())
    assert answers == [False, True]


def test_started_before_is_refused_outside_a_step(world):
    @workflow
    async def one() -> None:
        await started_before()

    with pytest.raises(NotInRun, match=r"started_before\(\) is for a step's body"):
        world.run(one())
