"""Stubbed effects, effects of the same name, programs that are no workers, and the memory that effects take."""

import asyncio

import pytest
from breaking_step import HOUR, LONG, breaks, broken
from outside import book, fail, outside, put, work

from outlast import (
    DuplicateName,
    RunParked,
    effect,
    workflow,
)
from outlast.store.commands import Submit
from outlast.testing import App, Broke, crash_everywhere


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


# -- stubs and names


@pytest.mark.parametrize("raises", [True, False])
def test_stubbed_effect_neither_acts_nor_compensates(raises):
    @workflow
    async def one() -> None:
        await book("a")
        raise LookupError

    app = App()
    if raises:
        app.stub(book, raises=ConnectionError("cut"))
    else:
        app.stub(book, returns="ticket a")
    with pytest.raises(ConnectionError if raises else LookupError):
        app.run(one(), id="run")
    assert app.executed["book"] == 1, "what a stub raises did not happen, and nobody need be asked"
    assert outside.log == []
    assert outside.told == []


def _made_for(tenant: str):
    @effect(timeout=5, idempotent=True)
    async def charge() -> str:
        outside.log.append(f"+{tenant}")
        return tenant

    @charge.compensate
    async def refund(it: str | None) -> None:
        outside.log.append(f"-{tenant}")

    return charge


def test_earlier_of_two_effects_with_one_name_is_refused(world):
    """It would be undone by the other one's compensation."""
    first, second = _made_for("A"), _made_for("B")

    @workflow
    async def one(which: int) -> None:
        await (first, second)[which]()
        await fail()

    with pytest.raises(DuplicateName, match="charge"):
        world.run(one(0))
    assert outside.log == []
    with pytest.raises(ValueError, match="no"):
        world.run(one(1), id="other")
    assert outside.log == ["+B", "-B"]


# -- a program that is no worker


def test_decided_run_stays_queued_without_a_worker(world):
    @effect(timeout=1)
    async def post() -> str:
        outside.attempts["post"] += 1
        if outside.attempts["post"] == 1:
            raise ConnectionError("cut")
        return "posted"

    @post.compensate
    async def unpost(it: str | None) -> None:
        """It was not posted."""

    @workflow
    async def one() -> str:
        await put("a")
        return await post()

    async def main(app):
        with pytest.raises(RunParked):
            await (await app.start(one(), id="run")).result(timeout=HOUR)
        await app.decide("run", "post#1", did_not=True)
        await asyncio.sleep(100)
        assert (await app.get(one, "run").info()).status == "queued"
        return await (await app.start(one(), id="run")).result(timeout=HOUR)

    assert world.do(main) == "posted"
    assert outside.done == ["+a"]


def test_run_is_released_when_an_act_outlives_its_app(file_world):
    @effect(timeout=10, idempotent=True, undo=None)
    async def slow() -> str:
        outside.attempts["slow"] += 1
        await asyncio.sleep(3)
        return "slow"

    @workflow
    async def one() -> str:
        return await slow()

    async def main(app):
        async with file_world.another(close_timeout=1.0) as other:
            await other.start(one(), id="run")
            await asyncio.sleep(0.5)
        assert (await app.get(one, "run").info()).status == "running", "it acts"
        await asyncio.sleep(4)
        assert (await app.get(one, "run").info()).status == "queued"
        return await (await app.start(one(), id="run")).result(timeout=HOUR)

    assert file_world.do(main) == "slow"
    assert outside.attempts["slow"] == 1, "what came of it was recorded"


# -- memory


def kept(journal) -> int:
    """How many characters the fold keeps of arguments and results."""
    texts = [
        text
        for one in journal.effect_log.records.values()
        for text in (one.arguments, one.value, one.closed.value if one.closed is not None else None)
    ]
    return sum(len(text or "") for text in texts)


@pytest.mark.parametrize("replayed", [False, True])
def test_effects_without_compensation_take_no_memory(world, replayed):
    size, count = 1000, 20

    @effect(timeout=10, idempotent=True, undo=None)
    async def tell(number: int, text: str) -> str:
        return text

    @effect(timeout=10, idempotent=True)
    async def give(text: str) -> str:
        return text

    @give.compensate
    async def take_back(it: str | None, text: str) -> None:
        outside.told.append((it, text))

    @workflow
    async def one() -> None:
        told = [await tell(number, "x" * size) for number in range(count)]
        assert [len(text) for text in told] == [size] * count
        await give("y" * size)
        await work("rest", LONG)
        await fail()

    if replayed:
        world.die(one(), until=lambda: "rest" in outside.log)

    async def main(app):
        run = await app.start(one(), id="run")
        while outside.log.count("rest") < 1 + replayed:
            await asyncio.sleep(1)
        journal = app._open.in_flight.executions["run"].journal
        assert len(journal.effect_log.records) == count + 1
        characters = kept(journal)
        with pytest.raises(ValueError, match="no"):
            await run.result(timeout=2 * LONG)
        return characters

    assert world.do(main) < 5 * size, "of the one to be undone, nothing more"
    assert outside.told == [("y" * size, "y" * size)]


# -- crash_everywhere looks at what a failed run has left


def test_crash_test_reports_a_child_left_by_a_failed_run():
    """No workflow leaves one: the child is made by hand, and its parent has never called it."""
    broken.append("breaks")

    @workflow
    async def one() -> None:
        await breaks()

    async def by_hand(app):
        await asyncio.sleep(1)
        app.store.commit([Submit("crash/child#1", "child", "[]", "token", "seed", parent="crash")])

    with pytest.raises(Broke, match="unfinished or uncompensated: crash/child#1"):
        crash_everywhere(one(), outside=by_hand)
