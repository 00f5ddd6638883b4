"""Limits, version conflicts, divergence and cancellation of runs that use sessions."""

import asyncio

import pytest
from session_runs import found, held, hold, items, put

import outlast
from outlast import (
    LimitExceeded,
    RunParked,
    Unrecordable,
    VersionConflict,
    session,
    step,
    workflow,
)
from outlast.store.commands import FENCE, Append, Refused, UpdateSession


@pytest.fixture(autouse=True)
def _fresh():
    held.clear()


# -- limits and values


@workflow
async def too_much() -> str:
    s = session("s")
    try:
        await s.append("l", 3, 4)
    except LimitExceeded as error:
        await hold("limit")
        return f"{error.limit} {error.asked}"
    return "none"


def test_exceeded_limit_replays(world):
    world.store.commit([UpdateSession("s", "t", {}, appends={"l": Append(("1", "2"))})])
    world.restart(session_items_max=3)
    world.die(too_much(), until=lambda: held)
    world.store.commit([UpdateSession("s", "t2", {"l": None})])
    world.restart(session_items_max=3)
    assert world.run(too_much()) == "session_items_max 4"
    assert items(world, "l") == []


@workflow
async def reads_much() -> str:
    try:
        await session("s").all()
    except LimitExceeded as error:
        return error.what
    return "none"


def test_oversized_read_is_refused(world):
    world.store.commit(
        [UpdateSession("s", "t", {"a": '"' + "x" * 90 + '"', "b": '"' + "x" * 90 + '"'})]
    )
    world.restart(value_size_max=100)
    assert world.run(reads_much()) == "what was read of session 's'"
    assert world.replays(reads_much()) == "what was read of session 's'"


@workflow
async def reads_a_number() -> int:
    return await session("s").get("n", 0, type=int)


def test_value_of_the_wrong_type_fails_the_run_until_a_retry(world):
    put(world, n='"seven"')
    with pytest.raises(Unrecordable, match="field 'n' of session 's'"):
        world.run(reads_a_number())
    assert world.status() == "failed"
    put(world, n="7", token="fixed")

    async def retry(app):
        await app.retry("run")
        return await (await app.start(reads_a_number(), id="run")).result()

    assert world.do(retry) == 7


# -- versions


@workflow
async def compare_and_set() -> list:
    s = session("s")
    info = await s.info()
    await hold("between")
    try:
        return ["set", await s.set("n", 1, version=info.version)]
    except VersionConflict as conflict:
        await hold("after")
        return [conflict.session, conflict.expected, conflict.current, str(conflict)]


def test_caught_conflict_replays(world):
    put(world, n=0)

    async def main(app):
        run = await app.start(compare_and_set(), id="run")
        while not held:
            await asyncio.sleep(1)
        await app.session("s").set("n", 9)
        return await run.result()

    result = world.do(main)
    assert result[:3] == ["s", 1, 2]
    world.store.commit([UpdateSession("s", "x", {"n": None})])
    assert world.replays(compare_and_set()) == result
    assert found(world) == {}


def test_compare_and_set_succeeds_without_a_conflict(world):
    put(world, n=0)
    assert world.run(compare_and_set()) == ["set", 2]
    assert found(world) == {"n": "1"}


@workflow
async def insists() -> int:
    return await session("s").set("n", 1, version=1)


def test_retry_repeats_a_conflicting_write(world):
    with pytest.raises(VersionConflict):
        world.run(insists())
    assert world.status() == "failed"
    put(world, n=0)

    async def retry(app):
        await app.retry("run")
        return await (await app.start(insists(), id="run")).result()

    assert world.do(retry) == 2
    assert found(world) == {"n": "1"}


@step
async def fails() -> None:
    held.append("fails")
    await asyncio.sleep(1)
    if len(held) == 1:
        raise RuntimeError("the first time")


@workflow
async def appends_beside() -> list:
    s = session("s")

    async def later() -> int:
        await asyncio.sleep(0.5)
        return await s.append("turns", 1)

    return [*await asyncio.gather(fails(), later()), await s.append("turns", 2)]


def test_retry_does_not_repeat_an_append(world):
    with pytest.raises(RuntimeError, match="the first time"):
        world.run(appends_beside())

    async def retry(app):
        await app.retry("run")
        return await (await app.start(appends_beside(), id="run")).result()

    assert world.do(retry) == [None, 1, 2]
    assert items(world) == ["1", "2"]


# -- divergence, cancellation, other runs


@workflow
async def changed(what: str) -> None:
    s = session("s")
    call = s.append if changes["call"] == "append" else s.set
    await call(changes["list"], changes["what"])
    await hold(what)


FIRST = {"what": 1, "list": "turns", "call": "append"}
changes = dict(FIRST)


@pytest.mark.parametrize("change", [{"list": "others"}, {"call": "set"}])
def test_changed_code_diverges_and_changes_nothing(world, change):
    changes.update(FIRST)
    world.die(changed("x"), until=lambda: held)
    changes.update(change)
    with pytest.raises(RunParked, match="session"):
        world.run(changed("x"))
    assert items(world) == ["1"]
    changes.update(FIRST)

    async def resume(app):
        await app.resume("run")
        return await (await app.start(changed("x"), id="run")).result()

    assert world.do(resume) is None
    assert items(world) == ["1"]


def test_a_replay_does_not_compare_the_values(world):
    """Frameworks put their own times and ids into a history."""
    changes.update(FIRST)
    world.die(changed("x"), until=lambda: held)
    changes.update(what="another id")
    assert world.run(changed("x")) is None
    assert items(world) == ["1"]


@workflow
async def impatient() -> str:
    s = session("s")
    await s.get("anything")
    task = asyncio.create_task(s.append("turns", 1))
    await asyncio.sleep(0)
    task.cancel()
    try:
        return f"appended {await task}"
    except asyncio.CancelledError:
        return f"cancelled, {await s.last('turns')}"


def test_change_under_way_is_made_despite_cancellation(world):
    result = world.run(impatient())
    assert result == "cancelled, [1]"
    assert world.replays(impatient()) == result
    assert items(world) == ["1"]


@workflow
async def never_starts() -> str:
    s = session("s")
    task = asyncio.create_task(s.append("turns", 1))
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return f"{await s.last('turns')}"
    return "?"


def test_change_that_is_cancelled_before_its_first_turn_is_not_made(world):
    assert world.run(never_starts()) == "[]"
    assert world.replays(never_starts()) == "[]"


@workflow
async def timed() -> str:
    s = session("s")
    try:
        async with asyncio.timeout(5):
            await hold("x")
    except TimeoutError:
        await s.set("timed out", True)
    return str(await s.get("timed out"))


def test_run_that_is_cancelled_makes_no_new_change(world):
    assert world.run(timed()) == "True"

    @workflow
    async def cleans_up() -> None:
        try:
            await hold("x")
        finally:
            await session("s").set("cleaned", 1)

    async def main(app):
        run = await app.start(cleans_up(), id="two")
        while len(held) < 2:
            await asyncio.sleep(1)
        await app.cancel("two")
        return await run.result()

    with pytest.raises(outlast.RunCancelled):
        world.do(main)
    assert "cleaned" not in found(world)


@workflow
async def talks(name: str) -> list[int]:
    return [await session("s").append("turns", f"{name}{n}") for n in range(10)]


def test_two_runs_append_to_one_session_and_nothing_is_lost(world):
    async def main(app):
        runs = [await app.start(talks(name), id=name) for name in "ab"]
        return [await run.result() for run in runs]

    a, b = world.do(main)
    assert sorted(a + b) == list(range(1, 21))
    for name in "ab":
        assert [item for item in items(world) if name in item] == [
            f'"{name}{n}"' for n in range(10)
        ]


def test_process_that_lost_its_run_changes_nothing(file_world):
    """Another has it by now: the change is refused under the old fence, with its entry."""
    refused = []

    async def main(app):
        commit = app.store.commit

        def overtaken(commands):
            if refused or not any(isinstance(command, UpdateSession) for command in commands):
                return commit(commands)
            app.store._db.execute("UPDATE runs SET fence = fence + 1000")
            outcomes = commit(commands)
            refused.extend(
                [*outcomes, app.store.session("s"), [entry.kind for entry in file_world.journal()]]
            )
            return outcomes

        app.store.commit = overtaken
        run = await app.start(late(), id="run")
        await asyncio.sleep(1000)
        return run

    file_world.do(main)
    assert refused == [Refused(FENCE), None, ["step"]]


@workflow
async def late() -> int:
    await hold("x")
    return await session("s").append("turns", 1)


@workflow
async def reads_again_and_again() -> None:
    s = session("s", ttl=100)
    await s.set("a", 1)
    for _ in range(3):
        await asyncio.sleep(50)
        await s.get("a")


def test_replay_does_not_extend_the_expiry(world):
    world.run(reads_again_and_again())
    expires = world.store.session("s").expires
    assert expires > world.clock() + 95
    world.clock.advance(50)
    world.replays(reads_again_and_again())
    assert world.store.session("s").expires == expires


def test_child_shares_a_session_with_its_parent(world):
    @workflow
    async def child() -> int:
        return await session("s").append("turns", "child")

    @workflow
    async def parent() -> list:
        await session("s").append("turns", "parent")
        return [await child(), await session("s").last("turns")]

    assert world.run(parent()) == [2, ["parent", "child"]]


def test_session_calls_count_towards_the_entry_limit(world):
    @workflow
    async def many() -> None:
        for _ in range(20):
            await session("s").get("a")

    world.restart(journal_entries_max=10)
    with pytest.raises(LimitExceeded, match="journal_entries_max"):
        world.run(many())


def test_write_in_a_run_does_not_shorten_the_ttl(world):
    @workflow(name="brief")
    async def brief() -> None:
        await session("long").set("b", 2)

    async def main(app):
        await app.session("long", ttl=None).set("a", 1)
        await (await app.start(brief(), id="brief")).result()
        return await app.session("long").info()

    info = world.do(main)
    assert (info.version, info.expires_at) == (2, None)
