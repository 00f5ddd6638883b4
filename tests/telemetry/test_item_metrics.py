"""Items and dead letters are counted once, by their outcome."""

import asyncio

from meter_tools import numbers


def test_items_are_counted_by_outcome(world):
    async def main(app):
        queue = app.queue("mail")
        await queue.put_many(["a", "b", "c", "d"], ids=["a", "b", "c", "d"])

        async def handle(item):
            if item.id == "a":
                raise ValueError("no")
            if item.id == "d":
                await asyncio.sleep(1000)

        consuming = asyncio.ensure_future(queue.consume(handle, concurrency=4))
        await asyncio.sleep(0.5)
        consuming.cancel()
        await asyncio.wait([consuming])
        await asyncio.sleep(0.5)
        return numbers(app, "outlast_items_total")

    ends = world.do(main)
    assert ends["mail", "acked"] == 2
    assert ends["mail", "nacked"] >= 1
    assert ends["mail", "released"] == 1


def test_manually_acked_item_is_counted(world):
    async def main(app):
        await app.queue("mail").put("a")
        await (await app.queue("mail").claim()).ack()
        return numbers(app, "outlast_items_total")

    assert world.do(main) == {("mail", "acked"): 1}


def test_item_acked_twice_is_counted_once(world):
    async def main(app):
        await app.queue("mail").put("a")
        item = await app.queue("mail").claim()
        await item.ack()
        await item.ack()
        return numbers(app, "outlast_items_total")

    assert world.do(main) == {("mail", "acked"): 1}


def test_consumed_queue_starts_with_zero_counters(world):
    async def main(app):
        consuming = asyncio.ensure_future(app.queue("mail").consume(print))
        await asyncio.sleep(0.1)
        consuming.cancel()
        await asyncio.wait([consuming])
        return numbers(app, "outlast_dead_letters_total")

    assert world.do(main) == {("mail",): 0}, "one that is born with its value has no rise"


def test_dead_letter_is_counted_by_its_worker(world):
    async def main(app):
        await app.queue("mail").put("a")
        await (await app.queue("mail").claim()).nack(delay=0)
        await asyncio.sleep(0.1)
        return numbers(app, "outlast_dead_letters_total"), numbers(app, "outlast_items_total")

    world.settings = {"max_attempts": 1}
    assert world.do(main) == ({("mail",): 1}, {("mail", "nacked"): 1})
