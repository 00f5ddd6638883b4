"""A run is cancelled while its effects act, wait or are unknown."""

import asyncio
import json

import pytest
from bank import EFFECTS, RECEIPT, SPAN, bank, pay, sync_pay

from outlast import RunCancelled, RunParked, sleep, workflow


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)


@workflow
async def plain(fx: str) -> str:
    return await EFFECTS[fx]("rent", 3.0)


def cancelled_at(world, call, seconds: float) -> float:
    async def main(app):
        run = await app.start(call, id="run")
        await asyncio.sleep(seconds)
        await app.cancel("run", "enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=1e5)
        return app.clock.elapsed

    return world.do(main)


def replays_cancelled(world, call) -> None:
    with pytest.raises(RunCancelled, match="enough"):
        world.replays(call)


def test_run_cancelled_while_an_effect_acts_ends_when_that_is_on_record(world):
    assert cancelled_at(world, plain("pay"), 1.0) == pytest.approx(3, abs=0.1)
    assert world.kinds() == ["intent", "cancel", "step"]
    assert world.journal()[-1].value == json.dumps(RECEIPT)
    replays_cancelled(world, plain("pay"))
    assert len(bank.acts) == 1


def test_sync_run_cancelled_while_its_effect_acts_ends_when_that_is_on_record(world):
    @workflow
    def in_sync() -> str:
        return sync_pay("rent")

    bank.comes["rent"] = ["hangs"]

    async def main(app):
        run = await app.start(in_sync(), id="run")
        while not bank.acts:
            await asyncio.sleep(0)
        await app.cancel("run", "enough")
        while "cancel" not in world.kinds():
            await asyncio.sleep(0)
        bank.gate.set()
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(timeout=1e5)

    world.do(main)
    assert world.kinds() == ["intent", "cancel", "step"]
    assert world.journal()[-1].value == json.dumps(RECEIPT)
    replays_cancelled(world, in_sync())


@pytest.mark.parametrize("comes", ["lost", "broken"])
def test_run_cancelled_while_it_waits_to_verify_ends_when_it_knows(world, comes):
    bank.comes["rent"] = [comes]
    assert cancelled_at(world, plain("pay"), 8.0) == pytest.approx(SPAN, abs=0.1)
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == ("happened" if comes == "lost" else "did not happen")
    replays_cancelled(world, plain("pay"))
    assert len(bank.acts) == 1


def test_run_cancelled_in_a_back_off_ends_at_once(world):
    bank.comes["rent"] = ["refused"]
    assert cancelled_at(world, plain("pay"), 3.2) == pytest.approx(3.2, abs=0.1)
    replays_cancelled(world, plain("pay"))
    assert len(bank.acts) == 1


def test_run_cancelled_before_its_effect_begins_leaves_no_intent(world):
    @workflow
    async def later() -> str:
        await sleep(10)
        return await pay("rent")

    cancelled_at(world, later(), 5.0)
    assert "intent" not in world.kinds()
    assert bank.acts == []


def test_run_cancelled_while_dead_verifies_what_is_open_and_does_nothing_more(world):
    world.die(plain("pay"), after=0.5)
    world.do(lambda app: app.cancel("run", "enough"))
    with pytest.raises(RunCancelled, match="enough"):
        world.run(plain("pay"))
    assert (len(bank.acts), bank.asked_at) == (1, [pytest.approx(SPAN, abs=0.2)])
    replays_cancelled(world, plain("pay"))


def test_cancelled_run_with_an_unknown_effect_is_parked(world):
    bank.comes["rent"] = ["broken"]

    async def main(app):
        run = await app.start(plain("mail"), id="run")
        await asyncio.sleep(8)
        await app.cancel("run", "enough")
        with pytest.raises(RunParked, match="mail#1"):
            await run.result(timeout=1e5)

    world.do(main)
    world.do(lambda app: app.decide("run", "mail#1", did_not=True))
    with pytest.raises(RunCancelled, match="enough"):
        world.run(plain("mail"))
    assert len(bank.acts) == 1
    assert world.status() == "cancelled"


def test_run_whose_timeout_comes_while_an_effect_acts_has_its_outcome_on_record(world):
    @workflow(timeout=2.0)
    async def short() -> str:
        return await pay("rent", 3.0)

    with pytest.raises(TimeoutError):
        world.run(short())
    assert world.kinds() == ["intent", "cancel", "step"]
    assert world.journal()[-1].value == json.dumps(RECEIPT)


def test_open_idempotent_effect_of_a_cancelled_run_is_shown_as_open(world):
    bank.comes["rent"] = ["lost"]
    cancelled_at(world, plain("push"), 3.2)
    (info,) = world.do(lambda app: app.effects("run"))
    assert info.state == "open"
    assert len(bank.acts) == 1
