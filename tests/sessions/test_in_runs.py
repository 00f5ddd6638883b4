"""Session calls of a run are recorded, and replayed with the same answers."""

import asyncio

import pytest
from session_runs import found, held, hold, items, put

import outlast
from outlast import (
    NotInRun,
    NotInStep,
    session,
    step,
    workflow,
)
from outlast.testing import App


@pytest.fixture(autouse=True)
def _fresh():
    held.clear()


# -- what is recorded


@workflow
async def chat(said: str) -> list:
    s = session("s")
    name = await s.get("name", "stranger")
    await s.append("turns", said, keep=10)
    await hold("thinking")
    version = await s.append("turns", f"hello {name}", keep=10)
    return [version, await s.last("turns"), await s.all()]


def test_each_call_is_an_entry_of_the_journal(world):
    put(world, name='"Ada"')
    assert world.run(chat("hi")) == [
        3,
        ["hi", "hello Ada"],
        {"name": "Ada", "turns": ["hi", "hello Ada"]},
    ]
    assert world.keys() == [
        "session.get#1", "session.append#1", "hold#1", "session.append#2", "session.last#1", "session.all#1"
    ]  # fmt: skip
    assert set(world.kinds()) == {"session", "step"}
    assert items(world) == ['"hi"', '"hello Ada"']


def test_replay_returns_recorded_reads_and_changes_nothing(world):
    put(world, name='"Ada"')
    result = world.run(chat("hi"))
    put(world, name='"Bob"', token="other")
    before = world.store.session("s")
    assert world.replays(chat("hi")) == result
    assert world.store.session("s") == before


def test_restarted_run_continues_with_recorded_reads(world):
    put(world, name='"Ada"')
    world.die(chat("hi"), until=lambda: held)
    put(world, name='"Bob"', token="other")
    version, turns, everything = world.run(chat("hi"))
    assert (version, turns) == (4, ["hi", "hello Ada"])
    assert everything["name"] == "Bob"  # this was read after the death
    assert items(world) == ['"hi"', '"hello Ada"']


@workflow
async def everything() -> list:
    s, t = session("s"), session("t", ttl=None)
    got = [
        await s.set("a", 1),
        await s.update({"b": [2]}, c=None),
        await s.append("l", 1, 2, keep=1),
    ]
    got += [
        await s.get("a", type=int),
        await s.get("none", "d"),
        await s.last("l", None),
        await s.all(),
    ]
    got += [await s.delete("a", "l"), await t.delete("x"), await t.info(), (await s.info()).version]
    got += [await s.clear(), await s.info(), await s.all()]
    return [await t.set("n", 1), *got]


def test_every_call_can_be_made_and_replayed(world):
    result = [
        1,
        1,
        2,
        3,
        1,
        "d",
        [2],
        {"a": 1, "b": [2], "c": None, "l": [2]},
        4,
        0,
        None,
        4,
        None,
        None,
        {},
    ]
    assert world.run(everything()) == result
    assert world.replays(everything()) == result
    assert found(world) is None
    assert found(world, "t") == {"n": "1"}


@workflow
async def parallel() -> list:
    s = session("s")
    return await asyncio.gather(
        s.append("turns", 1), s.get("none", 7), s.append("turns", 2), hold("x"), s.set("a", 1)
    )


def test_concurrent_calls_are_numbered_in_code_order(world):
    result = world.run(parallel())
    assert sorted(result[i] for i in (0, 2, 4)) == [1, 2, 3]
    assert world.replays(parallel()) == result
    assert sorted(items(world)) == ["1", "2"]


@workflow
async def by_app() -> int:
    return await holder["app"].session("s").set("a", 1)


holder: dict = {}


def test_session_of_the_app_is_recorded_in_a_run(world):
    holder["app"] = world.app
    assert world.run(by_app()) == 1
    assert world.keys() == ["session.set#1"]
    holder["session"] = world.app.session("s")

    @workflow
    async def from_outside() -> int:
        return await holder["session"].set("a", 2)

    assert world.run(from_outside(), id="two") == 2
    assert world.keys("two") == ["session.set#1"]


def test_session_of_another_app_is_refused_in_a_run(world):
    async def main(app):
        async with App() as holder["app"]:
            await (await app.start(by_app(), id="run")).result()

    with pytest.raises(NotInStep, match="session 's' belongs to another Outlast"):
        world.do(main)


@step
async def body(*names: str) -> int:
    for name in names:
        version = await session("s").append("turns", name)
    held.append(names)
    if len(held) == 1:
        raise RuntimeError("once more")
    return version


body_retried = step(retries=1, backoff=0.01, name="body_retried")(body.fn)


@workflow
async def in_a_body() -> int:
    return await body_retried("a", "b")


def test_calls_in_a_step_are_not_recorded(world):
    """They happen as often as the body does."""
    assert world.run(in_a_body()) == 4
    assert set(world.kinds()) == {"attempt", "step"}
    assert items(world) == ['"a"', '"b"', '"a"', '"b"']


def test_session_outside_a_run_is_refused_with_a_hint(world):
    with pytest.raises(NotInRun, match=r"app\.session"):
        session("s")
    with pytest.raises(NotInRun, match=r"app\.checkpoint"):
        outlast.checkpoint("s")

    async def main(app):
        session("s")

    with pytest.raises(NotInRun, match=r"app\.session"):
        world.do(main)


@workflow
async def lists_sessions() -> int:
    return len(await holder["app"].sessions())


def test_sessions_are_not_listed_in_a_workflow(world):
    holder["app"] = world.app
    with pytest.raises(NotInStep, match="Use a step there"):
        world.run(lists_sessions())
