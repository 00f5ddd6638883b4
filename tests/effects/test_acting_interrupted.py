"""A cancellation, a drain or the end of the program while an effect acts."""

import asyncio
import logging

import pytest
from acting_tools import SPAN, paying_in_sync
from bank import (
    bank,
    mail,
    mailing,
    pay,
    paying,
    push,
    sync_mail,
)

from outlast import (
    RunParked,
    unit,
    workflow,
)
from outlast.execution.execution_state import EndReason
from outlast.store.commands import Claim, RegisterWorker, Sweep


@pytest.fixture(autouse=True)
def _fresh(world):
    bank.open(world.clock)
    yield
    bank.dies = True
    bank.gate.set()


# -- slow stores


def heard_late(app, kind: str, seconds: float) -> None:
    """The store has entries of this kind at once, and says so later."""
    store, loop = app._open.services.store, app._open.loop
    put = store.enqueue

    def later(command, done, **options):
        if getattr(command, "kind", None) == kind:
            put(command, lambda *outcome: loop.call_later(seconds, done, *outcome), **options)
        else:
            put(command, done, **options)

    store.enqueue = later


# -- a life that ends while an effect acts


def test_closing_the_app_waits_for_an_act(world):
    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert [line.label for line in bank.done] == ["rent"]
    assert world.kinds() == ["intent", "step", "interruption"]
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_closing_the_app_waits_for_the_thread_of_an_act(world):
    bank.comes["rent"] = ["hangs"]

    async def main(app):
        await app.start(paying_in_sync(), id="run")
        app._open.shutdown.close_began.add_done_callback(lambda _: bank.gate.set())
        while not bank.acts:
            await asyncio.sleep(0)

    world.do(main)
    assert world.kinds() == ["intent", "step", "interruption"]
    world.restart()
    assert world.run(paying_in_sync()) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_declared_failure_while_the_app_closes_is_recorded(world):
    bank.comes["rent"] = ["refused", "ok"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert world.kinds() == ["intent", "attempt", "interruption"]
    closed = world.clock.elapsed
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked == []
    assert bank.times[1] - closed < 2, "only the back-off"


def test_act_that_outlasts_the_close_stays_open(world):
    async def main(app):
        await app.start(paying("rent", 9.0), id="run")
        await asyncio.sleep(1)

    world.do(main)
    assert bank.done == []
    assert "step" not in world.kinds()
    world.restart(after=100)
    world.store._db.execute("DELETE FROM workers")
    assert world.run(paying("rent", 9.0)) == "receipt for rent"
    assert (len(bank.acts), len(bank.asked)) == (2, 1)


def test_evicted_run_does_not_act_after_its_intent(world):
    """Nobody need decide what came of an act that was never begun."""

    async def main(app):
        heard_late(app, "intent", 0.05)
        await app.start(mailing(), id="run")
        await asyncio.sleep(0.01)

    world.do(main)
    assert bank.acts == []
    assert "intent" in world.kinds()
    world.restart()
    assert world.run(mailing()) == "receipt for rent"
    assert len(bank.acts) == 1


def test_outcome_of_a_lost_run_is_logged_as_an_error(world, caplog):
    async def main(app):
        await app.start(paying("rent", 5.0), id="run")
        await asyncio.sleep(1)
        steal(world, app)
        app._open.in_flight.executions["run"].stop(EndReason.lost("another worker has it"))
        await asyncio.sleep(10)

    with caplog.at_level(logging.ERROR):
        world.do(main)
    assert (
        "Effect pay#1 of run run returned after this worker had lost the run. It may have happened twice."
        in caplog.text
    )
    assert world.kinds() == ["intent", "death"]


def test_outcome_that_the_store_refuses_is_logged_as_an_error(world, caplog):
    async def main(app):
        await app.start(paying("rent", 5.0), id="run")
        await asyncio.sleep(1)
        steal(world, app)
        await asyncio.sleep(10)

    with caplog.at_level(logging.ERROR):
        world.do(main)
    assert "It may have happened twice" in caplog.text
    assert world.kinds() == ["intent", "death"]


def steal(world, app, id="run") -> None:
    """Another worker sweeps and claims, as if the first one had been taken for dead."""
    other = world.open()
    other.acquire_liveness("thief")
    other.commit([RegisterWorker("thief", "elsewhere", 1, 1e6)])
    other._db.execute("DELETE FROM workers WHERE id = ?", (app._open.worker.id,))
    assert other.commit([Sweep()])[0].runs == (id,)
    other.commit([Claim("thief", "t", ids=(id,))])


# -- a drain


def test_drain_does_not_interrupt_an_act(world):
    async def main(app):
        await app.start(paying("rent", 8.0), id="run")
        await asyncio.sleep(1)
        return await app.drain("test", grace=10)  # steps are asked to stop after 5.5 s of it

    report = world.do(main)
    assert [line.label for line in bank.done] == ["rent"]
    assert world.kinds()[:2] == ["intent", "step"]
    assert report.left == []
    world.restart()
    assert world.run(paying("rent", 8.0)) == "receipt for rent"
    assert (len(bank.acts), bank.asked) == (1, [])


def test_failure_during_a_drain_is_retried_by_the_next_process(world):
    bank.comes["rent"] = ["refused", "ok"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=20)
        return app.clock()

    world.do(main)
    assert len(bank.acts) == 1
    assert world.clock.elapsed < 5
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked == []


def test_drain_does_not_wait_for_a_pending_verify(world):
    bank.comes["rent"] = ["lost"]

    async def main(app):
        await app.start(paying("rent", 3.0), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=30)

    world.do(main)
    assert bank.asked == []
    assert world.clock.elapsed < 5
    world.restart()
    assert world.run(paying("rent", 3.0)) == "receipt for rent"
    assert bank.asked_at == [pytest.approx(SPAN, abs=0.5)]
    assert len(bank.acts) == 1


def test_draining_unit_starts_no_unverifiable_effect(world):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await mail("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=10)

    world.do(main)
    assert bank.labels == ["first"]
    assert world.kinds()[:2] == ["intent", "step"]
    assert "intent" not in world.kinds()[2:]
    world.restart()
    assert world.run(order()) == ["receipt for first", "receipt for second"]
    assert bank.labels == ["first", "second"]


@pytest.mark.parametrize("fx", [pay, push], ids=["verifiable", "idempotent"])
def test_draining_unit_starts_a_verifiable_effect(world, fx):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await fx("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=10)

    world.do(main)
    assert bank.labels == ["first", "second"]
    assert world.status() == "done"


def test_draining_unit_starts_an_unverifiable_effect_if_time_allows(world):
    @workflow
    async def order() -> list[str]:
        async with unit("order"):
            return [await push("first", 3.0), await mail("second")]

    async def main(app):
        await app.start(order(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=60)

    world.do(main)
    assert bank.labels == ["first", "second"]
    assert world.status() == "done"


def test_no_effect_starts_during_a_drain(world):
    @workflow
    async def two() -> list[str]:
        return [await pay("a", 3.0), await pay("b", 3.0)]

    async def main(app):
        await app.start(two(), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=60)

    world.do(main)
    assert bank.labels == ["a"]
    world.restart()
    assert world.run(two()) == ["receipt for a", "receipt for b"]
    assert bank.labels == ["a", "b"]


# -- a program that ends in the middle


def test_unverifiable_effect_in_a_hung_thread_is_not_repeated_after_death(world):
    @workflow
    async def sending() -> str:
        return await sync_mail.aio("rent", 1.0)

    bank.comes["rent"] = ["hangs"]
    world.die(sending(), until=lambda: bool(bank.acts))
    with pytest.raises(RunParked, match="sync_mail#1"):
        world.run(sending())
    assert len(bank.acts) == 1
