"""An effect whose outcome is unknown is resolved only when it can no longer be in flight."""

import asyncio
import contextlib

import pytest
from bank import (
    MARGIN,
    TIMEOUT,
    bank,
    paying,
)
from resolving_tools import SPAN, about, work

from outlast import (
    KEY,
    Happened,
    RunParked,
    effect,
    workflow,
)
from outlast.testing import App


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


@effect(timeout=TIMEOUT, idempotent=True)
async def repeated() -> str:
    await asyncio.sleep(1)
    return "done"


@effect(timeout=TIMEOUT)
async def blind() -> str:
    await asyncio.sleep(1)
    return "done"


# -- the wait


def test_verify_waits_until_the_act_must_be_over_after_a_death(world):
    world.die(paying(), after=0.5)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_wait_for_another_process_is_logged(world, caplog):
    world.die(paying(), after=0.5)
    world.run(paying())
    [told] = [
        one for one in caplog.records if "was in flight when its process ended" in one.getMessage()
    ]
    assert told.levelname == "WARNING"
    assert (
        told.getMessage()
        == "Effect pay#1 of run run was in flight when its process ended. It may still be in "
        f"flight. In {SPAN - 0.5:.0f} s Outlast checks whether it happened."
    )


@pytest.mark.parametrize(
    ("fx", "action"),
    [
        (repeated, "calls it again with the same key"),
        (blind, "parks the run, because it cannot determine whether it happened"),
    ],
    ids=["idempotent", "neither"],
)
def test_logged_wait_says_what_follows_it(world, caplog, fx, action):
    @workflow(name=f"calls {fx.name}")
    async def calls() -> str:
        return await fx()

    world.die(calls(), after=0.5)
    with contextlib.suppress(RunParked):
        world.run(calls())
    [told] = [
        one.getMessage()
        for one in caplog.records
        if "It may still be in flight" in one.getMessage()
    ]
    assert told.endswith(f" s Outlast {action}.")


def test_wait_after_an_error_is_not_logged_as_interrupted(world, caplog):
    bank.comes["rent"] = ["broken", "ok"]
    world.die(paying(), after=4)
    world.run(paying())
    [told] = [
        one.getMessage()
        for one in caplog.records
        if "It may still be in flight" in one.getMessage()
    ]
    assert told.startswith("Effect pay#1 of run run raised. It may still be in flight. In ")


def test_wait_counts_from_the_intent(world):
    bank.comes["rent"] = ["hangs", "ok"]
    world.die(paying(), after=8, gap=4)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_long_outage_leaves_nothing_to_wait_for(world):
    world.die(paying(), after=0.5, gap=3600)
    world.run(paying())
    assert bank.asked_at == [about(3600.5)]


@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_verify_waits_until_the_act_must_be_over_after_an_error(world, comes):
    bank.comes["rent"] = [comes, "ok"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN)]
    assert len(bank.acts) == (1 if comes == "lost" else 2)


def test_verify_waits_for_the_margin_after_a_timeout(world):
    bank.comes["rent"] = ["lost and hangs"]
    assert world.run(paying()) == "receipt for rent"
    assert bank.asked_at == [about(SPAN)]
    assert len(bank.acts) == 1


def test_margin_is_a_setting(world):
    world.settings = {"effect_margin": 100}
    bank.comes["rent"] = ["lost"]
    world.run(paying())
    assert bank.asked_at == [about(TIMEOUT + 100)]


def test_zero_margin_leaves_only_the_timeout(world):
    world.settings = {"effect_margin": 0}
    bank.comes["rent"] = ["lost"]
    world.run(paying())
    assert bank.asked_at == [about(TIMEOUT)]


def test_wait_uses_the_timeout_of_the_recorded_act(world):
    """The code may have another one by now."""

    def version(timeout: float):
        @effect(timeout=timeout)
        async def send(label: str) -> str:
            return await bank.act(label, 1.0, "k")

        @send.verify
        async def sent(label: str) -> Happened[str] | None:
            return bank.answer(label, "k", bank.ask(label, "k"))

        @workflow
        async def sending() -> str:
            return await send("x")

        return sending

    world.die(version(100)(), after=0.5)
    world.run(version(2)())
    assert bank.asked_at == [about(100 + MARGIN)]


def test_second_death_does_not_prolong_the_wait(world):
    world.die(paying(), after=0.5)
    world.die(paying(), after=5)
    world.run(paying())
    assert bank.asked_at == [about(SPAN)]


def test_repeated_act_is_waited_for_again(world):
    world.die(paying(), after=0.5)
    world.die(paying(), until=lambda: len(bank.acts) == 2)
    assert bank.times[1] == about(SPAN)
    world.run(paying())
    assert bank.asked_at == [about(SPAN), about(2 * SPAN)]


# -- a run that only waits for that


def worker(world, **settings) -> App:
    alone = {"lease": 1e7, "heartbeat": 1e6, "ramp": 0, "new_share": 0, "concurrency": 1}
    return world.restart(worker=True, **{**alone, "workflows": [slow_paying, quick], **settings})


@effect(timeout=1000, undo=None)
async def slow_pay(label: str, key: str = KEY) -> str:
    return await bank.act(label, 1.0, key)


@slow_pay.verify
async def slow_paid(label: str, key: str) -> Happened[str] | None:
    return bank.answer(label, key, bank.ask(label, key))


@workflow
async def slow_paying() -> str:
    return await slow_pay("rent")


@workflow
async def quick() -> float:
    return bank.now()


def test_run_that_waits_to_verify_holds_no_slot(world):
    world.die(slow_paying(), after=0.5)
    worker(world)

    async def main(app):
        run = app.get(slow_paying, "run")
        await asyncio.sleep(10)
        row = app.store.run("run")
        assert (row.status, row.worker) == ("waiting", None)
        assert row.due == about(world.clock.start + 1000 + MARGIN)
        other = await app.submit(quick(), id="other")
        assert await other.result(timeout=5) < 20, "the only slot is free"
        return await run.result(timeout=5000)

    assert world.do(main) == "receipt for rent"
    assert bank.asked_at == [pytest.approx(1000 + MARGIN, abs=2.1)], "or when its worker next looks"
    assert world.row().deaths == 1
    assert world.row().interruptions == 0


def test_run_whose_act_raised_is_released_until_verify(world):
    bank.comes["rent"] = ["lost"]
    worker(world)

    async def main(app):
        run = await app.submit(slow_paying(), id="run")
        await asyncio.sleep(20)
        assert app.store.run("run").status == "waiting"
        return await run.result(timeout=5000)

    assert world.do(main) == "receipt for rent"
    assert bank.asked_at == [about(1000 + MARGIN)]
    assert world.row().lives == 2
    assert len(bank.acts) == 1


def test_busy_run_is_not_released_while_it_waits_to_verify(world):
    @workflow
    async def both() -> list[str]:
        return await asyncio.gather(slow_pay("rent"), work("long", 500.0))

    world.die(both(), after=0.5)
    worker(world, workflows=[both])

    async def main(app):
        await asyncio.sleep(10)
        assert app.store.run("run").status == "running"
        return await app.get(both, "run").result(timeout=5000)

    assert world.do(main) == ["receipt for rent", "long"]
