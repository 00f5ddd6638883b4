"""Code that does not repeat a recorded intent parks the run, and nothing is executed."""

import asyncio

import pytest
from bank import bank, pay, push

from outlast import RunParked, effect, sleep, step, workflow


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)


@step
async def work(label: str) -> str:
    bank.begin(label, "")
    return label


def version(body):
    return workflow(name="changing")(body)


def parked(world, body, *, before) -> str:
    """A life of one version dies while its effect acts; the next has another."""
    world.die(version(before)(), after=0.5)
    acts = list(bank.acts)
    with pytest.raises(RunParked) as reason:
        world.run(version(body)())
    assert bank.acts == acts, "nothing is executed"
    assert bank.asked == []
    assert world.executed == {}
    return str(reason.value)


async def before() -> str:
    return await pay("rent")


def test_removed_effect_with_an_open_intent_parks_the_run(world):
    async def after() -> str:
        return await push("rent")

    reason = parked(world, after, before=before)
    assert "the journal recorded intent pay#1" in reason
    assert "push#1" in reason


def test_effect_that_became_a_step_parks_the_run(world):
    @step(name="pay")
    async def pay_step(label: str) -> str:
        return bank.begin(label, "")

    async def after() -> str:
        return await pay_step("rent")

    assert "the journal recorded intent pay#1" in parked(world, after, before=before)


def test_intent_with_other_arguments_parks_the_run(world):
    async def after() -> str:
        return await pay("heat")

    reason = parked(world, after, before=before)
    assert '"rent"' in reason
    assert '"heat"' in reason


def test_workflow_that_ends_without_calling_a_recorded_effect_is_parked(world):
    async def after() -> str:
        return "no need"

    assert "the end of changing" in parked(world, after, before=before)


def test_workflow_that_raises_without_calling_a_recorded_effect_is_parked(world):
    async def after() -> str:
        raise ValueError("no")

    assert "the end of changing" in parked(world, after, before=before)


def test_skipped_effect_with_later_entries_parks_the_run(world):
    async def two() -> str:
        _, label = await asyncio.gather(pay("rent"), work("x"))
        return label

    async def after() -> str:
        return await work("x")

    world.die(version(two)(), after=0.5)
    bank.acts.clear()
    with pytest.raises(RunParked, match="intent pay#1"):
        world.run(version(after)())
    assert bank.acts == []


def test_confirmed_effect_that_is_a_step_now_parks_the_run(world):
    """Its entry is of the same kind, but its intent is not."""

    @step(name="pay")
    async def pay_step(label: str) -> str:
        return bank.begin(label, "")

    async def first() -> str:
        receipt = await pay("rent")
        await sleep(100)
        return receipt

    async def after() -> str:
        receipt = await pay_step("rent")
        await sleep(100)
        return receipt

    world.die(version(first)(), after=50)
    with pytest.raises(RunParked, match="intent pay#1"):
        world.run(version(after)())
    assert len(bank.acts) == 1


def test_step_that_became_an_effect_keeps_its_result(world):
    """What was done is done; nothing of the outside world is in doubt."""

    @effect(timeout=10, name="work")
    async def work_effect(label: str) -> str:
        return bank.begin(label, "")

    async def first() -> str:
        label = await work("x")
        await sleep(100)
        return label

    async def after() -> str:
        label = await work_effect("x")
        await sleep(100)
        return label

    world.die(version(first)(), after=50)
    assert world.run(version(after)()) == "x"
    assert len(bank.acts) == 1


def test_restored_old_code_continues_the_run(world):
    async def after() -> str:
        return await push("rent")

    parked(world, after, before=before)
    world.restart()
    world.do(lambda app: app.resume("run"))
    assert world.run(version(before)()) == "receipt for rent"
    assert len(bank.asked) == 1


def test_outcome_of_an_act_is_recorded_though_the_run_diverges(world, monkeypatch):
    """A workflow that spins is parked; what its effect has done all the same is not forgotten."""
    monkeypatch.setattr("outlast.execution.delivery.CALLBACKS_MAX", 10_000)

    async def spinning() -> str:
        async def spin() -> None:
            await sleep(1)
            while True:
                await asyncio.sleep(0)

        await asyncio.gather(pay("rent", 3.0), spin())
        return "?"

    with pytest.raises(RunParked, match="without waiting"):
        world.run(version(spinning)())
    assert world.kinds() == ["intent", "fired", "step"]


@pytest.mark.parametrize("comes", ["broken", "refused"])
def test_failure_of_an_act_is_recorded_though_the_run_diverges(world, comes, monkeypatch):
    monkeypatch.setattr("outlast.execution.delivery.CALLBACKS_MAX", 10_000)

    async def spinning() -> str:
        async def spin() -> None:
            await sleep(1)
            while True:
                await asyncio.sleep(0)

        await asyncio.gather(pay("rent", 3.0), spin())
        return "?"

    bank.comes["rent"] = [comes]
    with pytest.raises(RunParked, match="without waiting"):
        world.run(version(spinning)())
    assert world.kinds() == ["intent", "fired", "attempt"]
