"""Drains and crashes at every moment: every item is done, and no done item is repeated."""

import asyncio
import os
import random
from collections import Counter

import pytest

from outlast import Draining, each, map, step, workflow  # noqa: A004
from outlast.testing import App, VirtualClock, crash_everywhere
from outlast.testing.store_images import EmptyStore

LONG_FORM = "OUTLAST_TEST_KILLS" in os.environ
ITEMS = [f"item-{number}" for number in range(12)]


async def stream(rng):
    for item in ITEMS:
        await asyncio.sleep(rng.choice([0, 0, 1]))
        yield item


@pytest.mark.parametrize("form", ["each", "map"])
@pytest.mark.parametrize("seed", range(25 if LONG_FORM else 8))
def test_drain_at_any_moment_loses_and_repeats_no_item(form, seed):
    rng, begun = random.Random(seed), Counter()
    clock, lives = VirtualClock(), 0
    store = EmptyStore(clock=clock)

    async def work(item: str) -> str:
        begun[item] += 1
        await asyncio.sleep(rng.random() * 2)
        return item.upper()

    async def job(app):
        items = ITEMS if seed % 2 else stream(rng)
        if form == "map":
            return await app.map(work, items, id="job", concurrency=3)
        async for item in app.each(items, id="job"):
            await work(item)
        return None

    async def drained(app):
        task = asyncio.create_task(job(app))
        await asyncio.sleep(rng.random() * 12)
        report = await app.drain("test")
        assert report.left == []
        try:
            return [await task]
        except Draining:
            return None

    ended = None
    while ended is None:
        ended, lives = App(store, clock=clock, seed=seed).do(drained), lives + 1
        clock.advance(0.01)
    store.close()
    assert lives < 100
    assert begun == Counter(ITEMS)
    if form == "map":
        assert ended == [{item: item.upper() for item in ITEMS}]


@step
async def handle(item: str) -> str:
    return item.upper()


async def upper(item: str) -> str:
    return item.upper()


@workflow
async def both(items: list[str]) -> list:
    handled = [await handle(item) async for item in each(items)]
    return [handled, await map(upper, items, concurrency=2)]


@pytest.mark.parametrize("store", ["memory:", "sqlite"] if LONG_FORM else ["memory:"])
def test_crash_at_every_write_changes_nothing(store):
    report = crash_everywhere(both(["a", "b"]), store=store)
    assert report.result == [["A", "B"], {"a": "A", "b": "B"}]
    assert report.crashes > 20
