"""Sessions in a run: every life gets what the first one got, and a change happens once."""

import asyncio

import pytest

import outlast
from outlast import (
    LimitExceeded,
    NotInRun,
    NotInStep,
    RunParked,
    Unrecordable,
    VersionConflict,
    session,
    step,
    workflow,
)
from outlast.store.verbs import FENCE, Append, Keep, Refused
from outlast.testing import App

held: list = []


@pytest.fixture(autouse=True)
def _fresh():
    held.clear()


@step
async def hold(what: str = "") -> str:
    held.append(what)
    await asyncio.sleep(100)
    return what


def put(world, id="s", token="outside", **fields):
    """What somebody else writes."""
    world.store.commit([Keep(id, token, {name: str(value) for name, value in fields.items()})])


def found(world, id="s"):
    row = world.store.session(id)
    return dict(row.fields) if row else None


def items(world, field="turns", id="s"):
    return world.store.items(id, field)


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


def test_a_replay_gets_what_was_found_then_and_changes_nothing(world):
    put(world, name='"Ada"')
    result = world.run(chat("hi"))
    put(world, name='"Bob"', token="other")
    before = world.store.session("s")
    assert world.replays(chat("hi")) == result
    assert world.store.session("s") == before


def test_a_life_after_a_death_goes_on_from_what_the_first_had_found(world):
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
    got = [await s.set("a", 1), await s.update({"b": [2]}, c=None), await s.append("l", 1, 2, keep=1)]
    got += [await s.get("a", type=int), await s.get("none", "d"), await s.last("l", None), await s.all()]
    got += [await s.delete("a", "l"), await t.delete("x"), await t.info(), (await s.info()).version]
    got += [await s.clear(), await s.info(), await s.all()]
    return [await t.set("n", 1), *got]


def test_every_call_can_be_made_and_replayed(world):
    result = [1, 1, 2, 3, 1, "d", [2], {"a": 1, "b": [2], "c": None, "l": [2]}, 4, 0, None, 4, None, None, {}]
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


def test_calls_that_are_made_at_once_are_numbered_as_they_are_written(world):
    result = world.run(parallel())
    assert sorted(result[i] for i in (0, 2, 4)) == [1, 2, 3]
    assert world.replays(parallel()) == result
    assert sorted(items(world)) == ["1", "2"]


@workflow
async def by_app() -> int:
    return await holder["app"].session("s").set("a", 1)


holder: dict = {}


def test_a_session_of_the_app_is_recorded_in_a_run_too(world):
    holder["app"] = world.app
    assert world.run(by_app()) == 1
    assert world.keys() == ["session.set#1"]
    holder["session"] = world.app.session("s")

    @workflow
    async def from_outside() -> int:
        return await holder["session"].set("a", 2)

    assert world.run(from_outside(), id="two") == 2
    assert world.keys("two") == ["session.set#1"]


def test_a_session_of_another_outlast_cannot_be_recorded_and_says_so(world):
    async def main(app):
        async with App() as holder["app"]:
            await (await app.start(by_app(), id="run")).result()

    with pytest.raises(NotInStep, match="session 's' is of another Outlast"):
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


def test_in_the_body_of_a_step_calls_are_plain_ones(world):
    """They happen as often as the body does."""
    assert world.run(in_a_body()) == 4
    assert set(world.kinds()) == {"attempt", "step"}
    assert items(world) == ['"a"', '"b"', '"a"', '"b"']


def test_outside_a_run_it_says_where_else(world):
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
    with pytest.raises(NotInStep, match="use a step there"):
        world.run(lists_sessions())


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


def test_a_limit_that_was_met_is_met_in_every_life(world):
    world.store.commit([Keep("s", "t", {}, appends={"l": Append(("1", "2"))})])
    world.restart(session_items_max=3)
    world.die(too_much(), until=lambda: held)
    world.store.commit([Keep("s", "t2", {"l": None})])
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


def test_a_read_of_more_than_an_entry_may_have_is_refused(world):
    world.store.commit([Keep("s", "t", {"a": '"' + "x" * 90 + '"', "b": '"' + "x" * 90 + '"'})])
    world.restart(value_size_max=100)
    assert world.run(reads_much()) == "what was read of session 's'"
    assert world.replays(reads_much()) == "what was read of session 's'"


@workflow
async def reads_a_number() -> int:
    return await session("s").get("n", 0, type=int)


def test_what_is_not_of_its_type_ends_the_run_and_a_retry_reads_it_anew(world):
    put(world, n='"seven"')
    with pytest.raises(Unrecordable, match="field 'n' of session 's'"):
        world.run(reads_a_number())
    assert world.status() == "failed"
    put(world, n="7", token="mended")

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


def test_a_conflict_that_was_caught_is_caught_in_every_life(world):
    put(world, n=0)

    async def main(app):
        run = await app.start(compare_and_set(), id="run")
        while not held:
            await asyncio.sleep(1)
        await app.session("s").set("n", 9)
        return await run.result()

    result = world.do(main)
    assert result[:3] == ["s", 1, 2]
    world.store.commit([Keep("s", "x", {"n": None})])
    assert world.replays(compare_and_set()) == result
    assert found(world) == {}


def test_without_one_it_is_set(world):
    put(world, n=0)
    assert world.run(compare_and_set()) == ["set", 2]
    assert found(world) == {"n": "1"}


@workflow
async def insists() -> int:
    return await session("s").set("n", 1, version=1)


def test_a_run_that_a_conflict_ended_tries_again_when_it_is_retried(world):
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


def test_what_a_retry_makes_void_is_not_appended_again(world):
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
    await (s.append("turns", changes["what"]) if changes["call"] == "append" else s.get("turns"))
    await hold(what)


changes = {"what": 1, "call": "append"}


@pytest.mark.parametrize("change", [{"what": 2, "call": "append"}, {"what": 1, "call": "get"}])
def test_other_code_than_was_recorded_is_a_divergence_and_changes_nothing(world, change):
    changes.update(what=1, call="append")
    world.die(changed("x"), until=lambda: held)
    changes.update(change)
    with pytest.raises(RunParked, match="session"):
        world.run(changed("x"))
    assert items(world) == ["1"]
    changes.update(what=1, call="append")

    async def resume(app):
        await app.resume("run")
        return await (await app.start(changed("x"), id="run")).result()

    assert world.do(resume) is None
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


def test_a_change_under_way_is_made_though_its_task_is_cancelled(world):
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


def test_a_change_that_is_cancelled_before_its_first_turn_is_not_made(world):
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


def test_a_run_that_is_cancelled_makes_no_new_change(world):
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
        assert [item for item in items(world) if name in item] == [f'"{name}{n}"' for n in range(10)]


def test_a_life_that_has_lost_its_run_changes_nothing(file_world):
    """Another has it by now: the change is refused under the old fence, with its entry."""
    refused = []

    async def main(app):
        commit = app.store.commit

        def overtaken(verbs):
            if refused or not any(isinstance(verb, Keep) for verb in verbs):
                return commit(verbs)
            app.store._db.execute("UPDATE runs SET fence = fence + 1000")
            outcomes = commit(verbs)
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


def test_the_live_read_moves_the_expiry_and_a_replay_does_not(world):
    world.run(reads_again_and_again())
    expires = world.store.session("s").expires
    assert expires > world.clock() + 95
    world.clock.advance(50)
    world.replays(reads_again_and_again())
    assert world.store.session("s").expires == expires


def test_a_child_shares_it_with_its_parent(world):
    @workflow
    async def child() -> int:
        return await session("s").append("turns", "child")

    @workflow
    async def parent() -> list:
        await session("s").append("turns", "parent")
        return [await child(), await session("s").last("turns")]

    assert world.run(parent()) == [2, ["parent", "child"]]


def test_the_limit_of_entries_counts_them(world):
    @workflow
    async def many() -> None:
        for _ in range(20):
            await session("s").get("a")

    world.restart(journal_entries_max=10)
    with pytest.raises(LimitExceeded, match="journal_entries_max"):
        world.run(many())


def test_a_write_in_a_run_that_says_nothing_of_the_time_shortens_nothing(world):
    @workflow(name="brief")
    async def brief() -> None:
        await session("long").set("b", 2)

    async def main(app):
        await app.session("long", ttl=None).set("a", 1)
        await (await app.start(brief(), id="brief")).result()
        return await app.session("long").info()

    info = world.do(main)
    assert (info.version, info.expires_at) == (2, None)
