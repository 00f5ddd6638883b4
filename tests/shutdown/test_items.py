"""Queue items and their handlers in a drain."""

import asyncio

from drain_tools import begun, ended


def test_handlers_under_way_end_and_no_other_begins(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put_many(list(range(5)), ids=[str(n) for n in range(5)])

        async def handle(item):
            begun.append(item.payload)
            await asyncio.sleep(5)
            ended.append(item.payload)

        consuming = asyncio.create_task(queue.consume(handle, concurrency=2))
        await asyncio.sleep(1)
        report = await app.drain("test")
        await asyncio.wait_for(consuming, 1)
        return report, await queue.size()

    world.settings = {"ramp": 0}
    report, size = world.do(main)
    assert (begun, sorted(ended), size) == ([0, 1], [0, 1], 3)
    assert (report.completed, report.left) == (2, [])
    assert {world.status(f"q/{n}") for n in (0, 1)} == {"done"}


def test_a_handler_that_fails_in_a_drain_is_nacked(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(_):
            await asyncio.sleep(5)
            raise ValueError("no")

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    row = world.row("q/one")
    assert (row.status, row.failures, row.worker, report.completed) == ("queued", 1, None, 1)


def test_an_item_whose_handler_does_not_end_in_time_is_given_back(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(_):
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append("cleaned")

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    row = world.row("q/one")
    assert (row.status, row.failures, row.interruptions, row.worker) == ("queued", 0, 1, None)
    assert (report.checkpointed, report.left, ended) == (1, [], ["cleaned"])


def test_a_drain_waits_for_an_item_claimed_by_hand(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")
        item = await queue.claim()
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(5)
        assert not drain.done()
        await item.ack()
        began = app.clock()
        report = await drain
        return report, app.clock() - began

    report, seconds = world.do(main)
    assert (report.completed, report.left) == (1, [])
    assert seconds < 0.2
    assert world.status("q/one") == "done"


def test_an_item_acked_by_its_handler_is_counted_once(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(item):
            await asyncio.sleep(5)
            await item.ack()

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    assert world.do(main).completed == 1


def test_an_item_claimed_by_hand_and_never_acked_is_given_back_at_close(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")
        item = await queue.claim()
        report = await app.drain("test")
        assert app.store.run("q/one").worker is not None, "the program may still work on it"
        return item, report

    _, report = world.do(main)
    assert [(left.what, left.id) for left in report.left] == [("item", "q/one")]
    row = world.row("q/one")
    assert (row.status, row.worker, row.deaths) == ("queued", None, 0)
