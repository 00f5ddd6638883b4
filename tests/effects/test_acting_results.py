"""The result of an effect, sync effects, and where effects are not allowed."""

import pytest
from acting_tools import SPAN, paying_in_sync
from bank import (
    TIMEOUT,
    bank,
    pay,
    paying_in_a_thread,
    sync_pay,
    sync_push,
)

from outlast import (
    KEY,
    LimitExceeded,
    NotInRun,
    RunParked,
    Unrecordable,
    effect,
    step,
    sync,
    workflow,
)


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


# -- the result


def test_unrecordable_result_counts_as_happened(world):
    @effect(timeout=10)
    async def odd() -> object:
        bank.begin("odd", "k")
        return object()

    @workflow
    async def trying() -> str:
        try:
            await odd()
        except Unrecordable as error:
            return str(error)
        return "?"

    told = world.run(trying())
    assert "odd happened, but its result cannot be recorded" in told
    assert world.kinds() == ["intent", "step"]
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert world.replays(trying()) == told
    assert len(bank.acts) == 1


def test_oversized_result_counts_as_happened(world):
    world.settings = {"value_size_max": 1000}

    @effect(timeout=10, idempotent=True, retries=3)
    async def large() -> str:
        bank.begin("large", "k")
        return "x" * 2000

    @workflow
    async def trying() -> str:
        try:
            return await large()
        except Unrecordable as error:
            return str(error)

    told = world.run(trying())
    assert "value_size_max" in told
    assert len(bank.acts) == 1
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "happened"
    assert world.replays(trying()) == told


def test_unrecordable_arguments_are_refused_before_any_write(world):
    @effect(timeout=10)
    async def take(what: object) -> None:
        bank.begin("take", "k")

    @workflow
    async def trying() -> str:
        try:
            await take(object())
        except Unrecordable:
            return "refused"
        return "?"

    assert world.run(trying()) == "refused"
    assert world.kinds() == []
    assert bank.acts == []


def test_oversized_arguments_are_refused_before_any_write(world):
    world.settings = {"value_size_max": 1000}

    @workflow
    async def trying() -> str:
        try:
            return await pay("x" * 2000)
        except LimitExceeded as error:
            return error.limit

    assert world.run(trying()) == "value_size_max"
    assert world.kinds() == []


def test_wrong_arguments_raise_type_error_before_any_write(world):
    @workflow
    async def trying() -> str:
        try:
            return await pay("rent", amount=3)
        except TypeError as error:
            return str(error)

    assert "amount" in world.run(trying())
    assert world.kinds() == []


# -- sync effects


def test_sync_effect_acts_in_a_thread_of_an_async_workflow(world):
    assert world.run(paying_in_a_thread()) == "receipt for rent"
    assert world.kinds() == ["intent", "step"]
    assert world.replays(paying_in_a_thread()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_sync_effect_is_a_plain_call_in_a_sync_workflow(world):
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert world.kinds() == ["intent", "step"]
    assert world.replays(paying_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_sync_effect_is_retried_after_a_declared_failure(world):
    bank.comes["rent"] = ["refused", "refused", "ok"]
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert len(bank.acts) == 3


def test_late_end_of_a_sync_effect_is_its_outcome(world, caplog):
    assert world.run(paying_in_a_thread("rent", 5 * TIMEOUT)) == "receipt for rent"
    assert "took longer than its timeout of 10.0 s. It is sync and cannot be stopped" in caplog.text
    assert (len(bank.acts), bank.asked) == (1, [])


def test_wait_for_a_hung_thread_counts_from_the_death(world):
    bank.comes["rent"] = ["hangs", "ok"]
    world.die(paying_in_a_thread("rent", 30.0), until=lambda: world.clock.elapsed > 29, gap=1)
    bank.dies = True
    bank.gate.set()
    assert bank.times == [0]
    died = world.clock.elapsed
    bank.dies = False
    world.run(paying_in_a_thread("rent", 30.0))
    assert bank.asked_at == [pytest.approx(died + SPAN, abs=0.5)]


def test_no_act_starts_while_an_earlier_thread_lives(world):
    bank.comes["rent"] = ["lost"]

    @workflow
    async def once() -> str:
        return await sync_push.aio("rent", 20.0)

    with pytest.raises(RunParked):
        world.run(once())
    assert [
        later - earlier >= 20 for earlier, later in zip(bank.times, bank.times[1:], strict=False)
    ] == [True] * 3


def test_sync_api_has_the_same_effects(world):
    assert sync.effect is effect
    assert sync.KEY is KEY


# -- where effects are not allowed


@pytest.mark.parametrize(
    ("seconds", "asked_after"), [(TIMEOUT / 2, SPAN), (3 * TIMEOUT, 3 * TIMEOUT + SPAN)]
)
def test_act_that_was_held_up_is_verified_a_whole_span_after_its_end(world, seconds, asked_after):
    """It may have been held up before it sent anything."""
    bank.comes["rent"] = ["lost"]
    assert world.run(paying_in_sync("rent", seconds)) == "receipt for rent"
    assert bank.asked_at == [pytest.approx(asked_after, abs=0.2)]


def test_effect_in_a_step_and_step_in_an_effect_are_refused(world):
    @step
    async def inner() -> str:
        return "?"

    @step
    async def calls_an_effect() -> str:
        return await pay("rent")

    @effect(timeout=10, failed_on=NotInRun)
    async def calls_a_step() -> str:
        return await inner()

    @step
    def calls_a_sync_effect() -> str:
        return sync_pay("rent")

    @workflow
    async def trying() -> list[str]:
        told = []
        for call in (calls_an_effect, calls_a_step, calls_a_sync_effect.aio):
            try:
                told.append(await call())
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
        return told

    told = world.run(trying())
    assert [one.partition(":")[0] for one in told] == ["NotInRun"] * 3
    assert "Call the effect in the workflow's code" in told[0]
    assert "effect" in told[1]
    assert bank.acts == []


def test_effect_called_in_an_effect_is_refused(world):
    @effect(timeout=10, failed_on=NotInRun)
    async def outer() -> str:
        return await pay("rent")

    @workflow
    async def trying() -> str:
        try:
            return await outer()
        except Exception as error:
            return type(error).__name__

    assert world.run(trying()) == "NotInRun"
    assert bank.acts == []
