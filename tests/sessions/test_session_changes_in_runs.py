"""Changes of sessions in runs: each is recorded, made once, and compared when it is replayed."""

import pytest
from session_runs import found, held, hold, items, put

from outlast import RunParked, VersionConflict, session, step, sync, update_sessions, workflow
from outlast.store.commands import UpdateSession
from support.crash_points import crash_at_some


@pytest.fixture(autouse=True)
def _fresh():
    held.clear()


@workflow
async def everything() -> list:
    a, b = session("a"), session("b", ttl=None)
    got = [
        await a.set("x", 1, if_absent=True),
        await a.set("x", 2, if_absent=True),
        await a.update({"y": b"\xff"}, append={"l": [1, 2, 3]}, delete=["x"]),
        await a.pop("l"),
        await a.pop("none", 3),
        await a.replace("l", -1, 9),
        await a.range("l", 0, 1),
        list((await a.fields("y", type=bytes))["y"]),
        await update_sessions(a.change(z=1), b.change(append={"l": ["b"]})),
    ]
    try:
        await a.replace("l", 7, 1)
    except IndexError as error:
        got.append(str(error))
    owned = await a.take()
    return [*got, await owned.set("mine", 1), await owned.clear(), await owned.all()]


def test_every_call_can_be_made_and_replayed(world):
    result = world.run(everything())
    assert result == [
        True,
        False,
        2,
        [3],
        [],
        5,
        [1],
        [255],
        [6, 1],
        "list 'l' of session 'a' has 2 items, and none at 7.",
        8,
        None,
        {},
    ]
    put(world, "a", x=7)
    assert world.replays(everything()) == result
    assert (found(world, "a"), items(world, "l", "b")) == ({"x": "7"}, ['"b"'])


def test_crashes_make_each_change_once():
    @workflow
    async def moves() -> list:
        a, b = session("a"), session("b")
        await a.append("l", 1, 2, 3)
        for _ in range(2):
            (item,) = await a.pop("l")
            await update_sessions(a.change(last=item), b.change(append={"l": [item]}))
        owned = await b.take()
        await owned.replace("l", 0, "x")
        first = await a.set("first", 1, if_absent=True)
        return [first, await a.all(), await b.all(), (await b.info()).version]

    assert crash_at_some(moves()).result == [
        True,
        {"first": 1, "l": [1], "last": 2},
        {"l": ["x", 2]},
        4,
    ]


# -- a change of several sessions


@workflow
async def group() -> list:
    a, b = session("a"), session("b")
    await hold("before")
    try:
        return await update_sessions(a.change(x=1), b.change(x=1, version=1))
    except VersionConflict as error:
        await hold("refused")
        return [error.session, error.current]


def test_refused_group_changes_nothing_and_replays(world):
    world.die(group(), until=lambda: "refused" in held)
    put(world, "b", x=0)
    result = world.run(group())
    assert result == ["b", 0]
    assert world.replays(group()) == result
    assert (found(world, "a"), found(world, "b")) == (None, {"x": "0"})


def test_group_is_one_entry_of_the_journal(world):
    put(world, "b", x=0)
    assert world.run(group()) == [1, 2]
    entries = [entry for entry in world.journal() if entry.kind == "session"]
    assert [entry.key for entry in entries] == ["session.update_sessions#1"]


@step
async def changes_in_a_step() -> list:
    a, b = session("a"), session("b")
    return await update_sessions(a.change(x=1), b.change(x=1))


def test_group_in_a_step_is_not_recorded(world):
    @workflow
    async def flow() -> list:
        return await changes_in_a_step()

    assert world.run(flow()) == [1, 1]
    assert [entry.kind for entry in world.journal() if entry.kind == "session"] == []


def test_sync_workflow_changes_several_sessions_together(world):
    @sync.workflow
    def flow() -> list:
        a, b = sync.session("a"), sync.session("b")
        versions = sync.update_sessions(a.change(x=1), b.change(append={"l": [1, 2]}))
        owned = a.take()
        return [versions, owned.set("y", 2), b.pop("l"), b.range("l")]

    result = world.run(flow())
    assert result == [[1, 1], 3, [2], [1]]
    assert world.replays(flow()) == result


# -- what a replay compares

FIRST = {
    "id": "s",
    "field": "a",
    "version": None,
    "value": 1,
    "index": 0,
    "count": 1,
    "if_absent": False,
}
now = dict(FIRST)


@workflow
async def changed() -> None:
    s = session(now["id"])
    await s.update({now["field"]: now["value"]}, version=now["version"], if_absent=now["if_absent"])
    await s.append("l", now["value"], now["value"])
    await s.replace("l", now["index"], now["value"])
    await s.pop("l", now["count"])
    await update_sessions(s.change({now["field"]: now["value"]}), session("t").change(x=1))
    await hold()


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"field": "b"},
        {"version": 0},
        {"index": 1},
        {"count": 2},
        {"if_absent": True},
    ],
    ids=str,
)
def test_replay_notices_another_change(world, change):
    now.update(FIRST)
    world.die(changed(), until=lambda: held)
    before = (found(world), items(world, "l"), found(world, "t"))
    now.update(change)
    with pytest.raises(RunParked, match="session"):
        world.run(changed())
    assert (found(world), items(world, "l"), found(world, "t")) == before
    assert found(world, "other") is None
    now.update(FIRST)

    async def resume(app):
        await app.resume("run")
        return await (await app.start(changed(), id="run")).result()

    assert world.do(resume) is None
    assert (found(world), items(world, "l"), found(world, "t")) == before


def test_replay_does_not_compare_values(world):
    now.update(FIRST)
    world.die(changed(), until=lambda: held)
    now.update(value="another")
    assert world.run(changed()) is None
    assert (found(world), items(world, "l")) == ({"a": "1"}, ["1"])


@pytest.mark.parametrize("swap", [True, False])
def test_replay_notices_other_sessions_of_a_group(world, swap):
    ids = ["a", "b"]

    @workflow
    async def grouped() -> None:
        await update_sessions(*(session(id).change(x=1) for id in ids))
        await hold()

    world.die(grouped(), until=lambda: held)
    ids[:] = ["b", "a"] if swap else ["a", "c"]
    with pytest.raises(RunParked, match="update_sessions"):
        world.run(grouped())
    assert found(world, "c") is None


def test_retry_after_a_refusal_makes_the_change(world):
    @workflow
    async def insists() -> int:
        await session("s").replace("l", 0, "x")
        return 1

    with pytest.raises(IndexError):
        world.run(insists())
    world.store.commit([UpdateSession("s", "t", {"l": None})])

    async def retry(app):
        await app.session("s").append("l", 1)
        await app.retry("run")
        return await (await app.start(insists(), id="run")).result()

    assert world.do(retry) == 1
    assert items(world, "l") == ['"x"']
