"""A viewer of a whole run sees its status, its journal and its executions."""

import asyncio

import pytest

from outlast import BadCursor, EndEvent, Outlast, current, publish, receive, step, workflow

log: list = []


@pytest.fixture(autouse=True)
def empty():
    log.clear()


@step(retries=2, backoff=0.001)
async def work(number: int) -> int:
    log.append(number)
    await asyncio.sleep(1)
    if number == 1 and log.count(1) == 1:
        raise ValueError("again")
    return number


@workflow
async def flow(count: int = 3) -> int:
    total = 0
    for number in range(count):
        total += await work(number)
    return total


async def collect(watch):
    return [event async for event in watch]


def types(events):
    return [event.value["type"] for event in events if event.kind == "data"]


def test_viewer_sees_the_status_the_journal_and_the_executions(world):
    async def main(app):
        await app.start(flow(), id="run")
        return await collect(app.watch("run"))

    events = world.do(main)
    seen = types(events)
    assert [one for one in seen if one != "status"] == [
        "execution_began", "step", "attempt", "step", "step", "execution_ended",
    ]  # fmt: skip
    statuses = [e.value["run"]["status"] for e in events[:-1] if e.value["type"] == "status"]
    assert statuses == ["running", "done"]
    assert isinstance(events[-1], EndEvent)
    assert events[-1].result == 3
    entries = [e.value["entry"] for e in events[:-1] if "entry" in e.value]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4]
    assert "void" not in entries[0]


def test_viewer_after_the_end_sees_the_same_in_the_same_order(world):
    world.run(flow())

    async def main(app):
        events = await collect(app.watch("run"))
        assert types(events) == [
            "status", "execution_began", "step", "attempt", "step", "step", "execution_ended",
        ]  # fmt: skip
        for number, event in enumerate(events[:-1]):
            assert await collect(app.watch("run", after=event.cursor)) == events[number + 1 :]
        async with app.watch("run", after=events[-1].cursor) as watch:
            assert watch.is_final

    world.do(main)


def test_viewer_sees_a_death_and_who_continues(world):
    world.die(flow(), after=1.5)
    seen: list = []

    async def main(app):
        await app.start(flow(), id="run")
        seen.extend(await collect(app.watch("run")))

    world.do(main)
    kinds = [one for one in types(seen) if one != "status"]
    assert kinds == [
        "execution_began", "step", "death", "execution_ended", "execution_began",
        "step", "step", "execution_ended",
    ]  # fmt: skip


@workflow
async def fails_once() -> str:
    await work(0)
    if not log.count("failed"):
        log.append("failed")
        raise ValueError("no")
    return "good"


def test_retry_is_an_entry_and_ends_differently(world):
    with pytest.raises(ValueError, match="no"):
        world.run(fails_once())

    async def main(app):
        events = await collect(app.watch("run"))
        assert events[-1].status == "failed"
        assert events[-1].error["message"] == "no"
        await app.retry("run")
        await (await app.start(fails_once(), id="run")).result()
        again = await collect(app.watch("run", after=events[-2].cursor))
        assert "retry" in types(again)
        assert again[-1].status == "done"
        after_end = await collect(app.watch("run", after=events[-1].cursor))
        assert after_end[0].kind == "reset"
        assert types(after_end)[:2] == ["status", "execution_began"]

    world.do(main)


@workflow
async def waits() -> str:
    return await receive("word", str)


def test_viewer_of_a_waiting_run_in_real_time(address):
    async def main():
        async with Outlast(address, signals=0, poll=0.05) as app:
            await app.start(waits(), id="r")
            async with app.watch("r") as watch:
                event = await anext(watch)
                assert event.value["run"]["status"] in ("running", "waiting")
                await app.send("r", "word", "hello")
                events = [event async for event in watch]
            assert "message" in types(events)
            assert events[-1].result == "hello"

    asyncio.run(main())


def test_long_journal_is_read_page_by_page(world):
    @step
    async def quick(number: int) -> int:
        return number

    @workflow
    async def long() -> int:
        for number in range(600):
            await quick(number)
        await publish("answer", "done")
        return 600

    world.run(long())

    async def main(app):
        events = await collect(app.watch("run"))
        assert types(events).count("step") == 600
        slow = app.watch("run")
        first = await anext(slow)
        assert await collect(app.watch("run", after=events[300].cursor)) == events[301:]
        assert [first, *await collect(slow)] == events

    world.do(main)


def test_cursor_of_a_stream_is_no_cursor_of_a_run(world):
    world.run(flow())

    async def main(app):
        (event,) = await collect(app.watch("run", "answer"))
        with pytest.raises(BadCursor):
            app.watch("run", after=event.cursor)
        cursor = (await collect(app.watch("run")))[-1].cursor
        with pytest.raises(BadCursor):
            app.watch("run", "answer", after=cursor)

    world.do(main)


@step
async def costly() -> str:
    current().cost(tokens=12, usd=0.5)
    return "asked"


@workflow
async def asking() -> str:
    await costly()
    return await receive("answer")


def test_viewer_sees_what_a_step_cost_and_what_the_run_waits_for(world):
    seen: list = []

    async def main(app):
        await app.start(asking(), id="run")
        async for event in app.watch("run"):
            seen.append(event)
            if event.kind == "data" and event.value["type"] == "status":
                if event.value["run"]["waiting_for"] == ["answer"]:
                    await app.send("run", "answer", "yes", message_id="m-1")

    world.do(main)
    (recorded,) = [e.value["entry"] for e in seen if e.kind == "data" and e.value["type"] == "step"]
    assert recorded["cost"] == {"tokens": 12, "usd": 0.5}
    assert seen[-1].result == "yes"
