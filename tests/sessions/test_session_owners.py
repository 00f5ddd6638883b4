"""A session with one owner: writes of an old owner are refused, in runs and outside."""

import asyncio

import pytest
from session_runs import found, held, hold
from session_tools import later, within

from outlast import NotOwner, Outlast, session, update_sessions, workflow
from outlast.store.commands import UpdateSession


@pytest.fixture(autouse=True)
def _fresh():
    held.clear()


def test_new_owner_locks_out_the_old_one(world):
    async def main(app):
        old = await app.session("s").take()
        await old.set("a", 1)
        new = await app.session("s").take()
        errors = []
        for write in (
            lambda: old.set("a", 2),
            lambda: old.set("b", 2, if_absent=True),
            lambda: old.append("l", 2),
            lambda: old.update(a=2),
            lambda: old.pop("l"),
            lambda: old.replace("l", 0, 1),
            lambda: old.delete("a"),
            old.clear,
            lambda: update_sessions(app.session("t").change(x=1), old.change(a=2)),
        ):
            with pytest.raises(NotOwner) as caught:
                await write()
            errors.append(caught.value)
        for error in errors:
            assert (error.session, error.owner, error.current) == ("s", old.owner, new.owner)
        assert "Stop writing to it" in str(errors[0])
        return [
            await old.all(),
            await new.set("a", 3),
            new.owner > old.owner,
            await app.sessions("t"),
        ]

    assert world.do(main) == [{"a": 1}, 4, True, []]


def test_session_taken_by_another_process_refuses_its_old_owner(place):
    async def main():
        async with Outlast(place, signals=0) as one, Outlast(place, signals=0) as two:
            first = await one.session("s").take()
            second = await two.session("s").take()
            with pytest.raises(NotOwner):
                await first.append("l", "late")
            await second.append("l", "in time")
            # The first one may take it back.
            third = await first.take()
            await third.append("l", "again")
            with pytest.raises(NotOwner):
                await second.append("l", "late")
            return await one.session("s").last("l"), third.owner > second.owner > first.owner

    assert asyncio.run(main()) == (["in time", "again"], True)


def test_handles_that_took_nothing_are_not_checked(world):
    async def main(s):
        owned = await s.take()
        await s.set("a", 1)
        return [s.owner, owned.owner == (await s.info()).owner, await owned.get("a")]

    assert within(world, main) == [None, True, 1]


def test_session_that_expired_has_no_owner(world):
    async def take(app):
        return await app.session("s", ttl=10).take()

    owned = world.do(take)
    later(world, 11)
    with pytest.raises(NotOwner, match="no longer has an owner") as caught:
        world.do(lambda _: owned.set("a", 1))
    assert caught.value.current == 0
    assert found(world) is None


def test_owner_that_clears_a_session_stays_its_owner(world):
    async def main(s):
        owned = await s.take()
        await owned.update({"a": 1}, append={"l": [1]})
        await owned.clear()
        return [await owned.all(), await owned.set("b", 2), (await s.info()).owner == owned.owner]

    assert within(world, main) == [{}, 4, True]


@workflow
async def owns() -> list:
    owned = await session("s").take()
    await hold("taken")
    return [owned.owner, await owned.append("l", 1), await owned.get("l")]


def test_run_that_continues_elsewhere_is_still_the_owner(world):
    world.die(owns(), until=lambda: held)
    owner = world.store.session("s").owner
    result = world.run(owns())
    assert result == [owner, 2, [1]]
    assert world.replays(owns()) == result
    assert world.store.session("s").owner == owner


@workflow
async def is_overtaken() -> list:
    owned = await session("s").take()
    await hold("taken")
    try:
        await owned.append("l", 1)
    except NotOwner as error:
        await hold("refused")
        return [error.owner, error.current]
    return []


def test_refusal_of_an_old_owner_replays(world):
    world.die(is_overtaken(), until=lambda: held)
    first = world.store.session("s").owner
    (taken,) = world.store.commit([UpdateSession("s", "another", {}, take=True)])
    result = world.run(is_overtaken())
    assert result == [first, taken.owner]
    world.store.commit([UpdateSession("s", "x", {}, clear=True)])
    assert world.replays(is_overtaken()) == result
    assert world.store.items("s", "l") == []


def test_a_number_is_enough_to_write_as_the_owner(world):
    async def main(app):
        number = (await app.session("s").take()).owner
        await app.session("s").owned_by(number).set("a", 1)
        new = await app.session("s").take()
        with pytest.raises(NotOwner):
            await app.session("s").owned_by(number).set("a", 2)
        with pytest.raises(TypeError, match="number of an owner"):
            app.session("s").owned_by("1")
        return await new.get("a")

    assert world.do(main) == 1
