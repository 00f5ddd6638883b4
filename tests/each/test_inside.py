"""`each` and `map` inside a run: the items are recorded, so that every life sees the same."""

import asyncio
import threading

import pytest

import outlast.api.batch_in_workflow as inside
from outlast import NotInRun, Unrecordable, step, workflow
from outlast.testing import App

rows: list = []
read: list = []
done: list = []


@pytest.fixture(autouse=True)
def _fresh():
    rows[:], read[:], done[:] = ["a", "b", "c"], [], []


@step
async def handle(row: str) -> str:
    done.append(row)
    await asyncio.sleep(10)
    return row.upper()


async def table():
    for row in list(rows):
        read.append(row)
        await asyncio.sleep(0.01)
        yield row


@workflow
async def batch() -> list[str]:
    return [await handle(row) async for row in inside.each(table())]


def test_every_item_is_a_step_of_the_run(world):
    assert world.run(batch()) == ["A", "B", "C"]
    assert world.keys() == [
        "each#1",
        "handle#1",
        "each#2",
        "handle#2",
        "each#3",
        "handle#3",
        "each#4",
    ]


def test_every_life_sees_the_same_items_and_what_was_added_comes_after(world):
    world.die(batch(), until=lambda: done == ["a", "b"])
    rows[:] = ["x", "c", "b", "a"]
    assert world.run(batch()) == ["A", "B", "X", "C"]
    assert done == ["a", "b", "b", "x", "c"]


def test_replay_reads_no_items(world):
    world.run(batch())
    read.clear()
    assert world.replays(batch()) == ["A", "B", "C"]
    assert read == []


@workflow
async def named(items: list[dict]) -> list[int]:
    return [
        item["n"] async for item in inside.each(items, id="orders", key=lambda item: item["id"])
    ]


def test_items_are_known_by_their_key_and_the_loop_by_its_id(world):
    assert world.run(named([{"id": "x", "n": 1}, {"id": "x", "n": 2}, {"id": "y", "n": 3}])) == [
        1,
        3,
    ]
    assert world.keys() == ["each:orders#1", "each:orders#2", "each:orders#3"]


def test_item_that_json_cannot_carry_is_an_error():
    @workflow
    async def flow() -> None:
        async for _ in inside.each([{1}], key=str):
            pass

    with pytest.raises(Unrecordable):
        App().run(flow())


def test_item_that_a_time_out_kept_back_comes_next(world):
    @workflow
    async def flow() -> list[str]:
        seen, items = [], inside.each(slow())
        for _ in range(20):
            try:
                async with asyncio.timeout(3):
                    seen.append(await anext(items))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        return seen

    async def slow():
        for row in "ab":
            await asyncio.sleep(10)
            yield row

    assert world.run(flow()) == ["a", "b"]
    assert world.replays(flow()) == ["a", "b"]


async def upper(row: str) -> str:
    done.append(row)
    await asyncio.sleep(10)
    return row.upper()


@workflow
async def mapped() -> dict[str, str]:
    return await inside.map(upper, table(), concurrency=1)


def test_map_is_one_step_whose_items_are_kept_one_by_one(world):
    world.die(mapped(), until=lambda: done == ["a", "b"])
    assert world.run(mapped()) == {"a": "A", "b": "B", "c": "C"}
    assert done == ["a", "b", "b", "c"]
    assert world.keys() == ["", "map#1"] or world.keys() == ["map#1"]
    assert (world.row("run/map#1").parent, world.status("run/map#1")) == ("run", "done")
    assert world.replays(mapped()) == {"a": "A", "b": "B", "c": "C"}


def test_failed_map_goes_on_when_its_run_is_retried(world):
    async def work(row: str) -> str:
        done.append(row)
        if row == "b" and done.count("b") == 1:
            raise ValueError(row)
        return row

    @workflow
    async def flow() -> dict[str, str]:
        return await inside.map(work, rows, id="x", concurrency=1)

    with pytest.raises(ValueError):
        world.run(flow())

    async def again(app):
        await app.retry("run")
        return await (await app.start(flow(), id="run")).result()

    assert world.do(again) == {"a": "a", "b": "b", "c": "c"}
    assert done == ["a", "b", "b", "c"]


def test_drain_in_the_middle_of_a_map_interrupts_its_run_and_fails_nothing(world):
    async def main(app):
        await app.start(mapped(), id="run")
        await asyncio.sleep(15)
        return await app.drain("test")

    report = world.do(main)
    assert (report.left, world.status()) == ([], "queued")
    assert [entry.kind for entry in world.journal() if entry.kind == "step"] == []
    world.restart()
    assert world.run(mapped()) == {"a": "A", "b": "B", "c": "C"}
    assert done == ["a", "b", "c"]


def test_step_may_be_what_is_mapped(world):
    @workflow
    async def flow() -> dict[str, str]:
        return await inside.map(handle, ["a", "b"])

    assert world.run(flow()) == {"a": "A", "b": "B"}
    assert world.replays(flow()) == {"a": "A", "b": "B"}


def test_steps_of_an_item_are_its_own_also_when_another_item_calls_the_same(world):
    @step
    async def draw(word: str) -> int:
        done.append(word)
        await asyncio.sleep(10)
        return len(done)

    async def ticket(row: str) -> int:
        return await draw("the same")

    @workflow
    async def flow() -> dict[str, int]:
        return await inside.map(ticket, ["a", "b"], concurrency=1)

    world.die(flow(), until=lambda: len(done) == 2)
    assert world.run(flow()) == {"a": 1, "b": 3}, "b has a ticket of its own"


def test_each_and_map_are_refused_outside_a_run():
    with pytest.raises(NotInRun):
        inside.each("ab")
    with pytest.raises(NotInRun):
        inside.map(upper, "ab")


def test_each_refuses_to_run_inside_a_step_body(world):
    @step
    async def body() -> None:
        inside.each("ab")

    @workflow
    async def flow() -> None:
        await body()

    with pytest.raises(NotInRun, match="a step's body"):
        world.run(flow())


# -- in sync workflows


def test_sync_workflow_has_them_too(world):
    import outlast.sync.batch as sync

    def shout(row: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return row.upper()

    @step
    def note(row: str) -> str:
        done.append(row)
        return row

    @workflow
    def flow() -> list:
        seen = [note(row) for row in sync.each(rows)]
        return [seen, sync.map(shout, seen, concurrency=2)]

    assert world.run(flow()) == [["a", "b", "c"], {"a": "A", "b": "B", "c": "C"}]
    done.clear()
    assert world.replays(flow()) == [["a", "b", "c"], {"a": "A", "b": "B", "c": "C"}]
    assert done == []
