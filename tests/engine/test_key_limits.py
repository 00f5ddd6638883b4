"""Limits per key and pauses of a queue, as workers keep them on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from outlast import BadName, LimitExceeded, SettingsError, sleep, step, workflow
from outlast.testing import App


@workflow
async def nap(seconds: float = 10.0) -> None:
    for _ in range(5):
        await rest(seconds / 5)


@step
async def rest(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow
async def waits(seconds: float) -> None:
    await sleep(seconds)


@workflow
async def parent() -> str:
    await waits(1.0)
    return "done"


def worker(world, **settings) -> App:
    options = {"ramp": 0, "poll": 300.0, "heartbeat": 1e4, "lease": 1e6, "concurrency": 10}
    workflows = [nap, waits, parent]
    return App(
        world.open(), clock=world.clock, worker=True, workflows=workflows, **(options | settings)
    )


async def most_at_once(app, seconds: int) -> Counter[str]:
    """Return how many runs of each key executed at once, at most."""
    most: Counter[str] = Counter()
    for _ in range(seconds):
        rows = await app.runs(status="running")
        for key, count in Counter(row.key for row in rows).items():
            most[key] = max(most[key], count)
        await asyncio.sleep(1)
    return most


def test_workers_execute_no_more_of_a_key_than_may_and_never_idle(world):
    async def main(app):
        await app.queue("default").limit(per_key_concurrency=2)
        await app.submit_many([nap()] * 8, keys=["a", "a", "a", "a", "a", "b", None, None])
        most = await most_at_once(app, 35)
        return most, {one.status for one in await app.runs()}

    most, statuses = worker(world).do(main)
    assert most == {"a": 2, "b": 1, None: 2}
    assert statuses == {"done"}


def test_a_worker_sleeps_until_the_rate_allows_the_next_start(world):
    """The worker polls every 300 seconds, so only the due time can wake it."""

    async def main(app):
        await app.queue("default").limit(per_key_rate="2/1m")
        await app.submit_many([nap(0.0)] * 5, keys=["a"] * 5)
        await asyncio.sleep(200)
        rows = sorted(await app.runs(), key=lambda row: row.started)
        return [round((row.started - rows[0].started).total_seconds()) for row in rows]

    assert worker(world).do(main) == [0, 0, 60, 60, 120]


def test_a_waiting_run_leaves_its_slot_to_another_of_its_key(world):
    async def main(app):
        await app.queue("default").limit(per_key_concurrency=1)
        for n in range(3):
            await app.submit(waits(1000.0), id=f"r{n}", key="a")
        await asyncio.sleep(900)
        return Counter(row.status for row in await app.runs())

    assert worker(world, linger=1.0).do(main) == {"waiting": 3}


def test_a_child_needs_no_slot_of_its_parents_key(world):
    async def main(app):
        await app.queue("default").limit(per_key_concurrency=1)
        run = await app.submit(parent(), key="a")
        return await run.result()

    assert worker(world).do(main) == "done"


def test_a_paused_queue_continues_after_it_is_resumed(world):
    async def main(app):
        queue = app.queue("default")
        await queue.limit(concurrency=5)
        await queue.pause()
        run = await app.submit(nap(0.0))
        await asyncio.sleep(1000)
        before = (await app.runs())[0].status
        (info,) = await app.queues()
        assert (info.paused, info.concurrency_max) == (True, 5)
        await queue.resume()
        await run.result()
        return before

    assert worker(world).do(main) == "queued"


def test_items_and_schedules_have_keys(world):
    async def main(app):
        await app.queue("mail").put({"to": "ann"}, key="ann")
        await app.queue("mail").put_many([1, 2], keys=["bob", None])
        info = await app.schedule("nightly", nap(0.0), every=3600.0, key="ann")
        await asyncio.sleep(4000)
        items = await app.runs(items=True)
        (fired,) = await app.runs()
        return info.key, fired.key, sorted(str(item.key) for item in items)

    assert worker(world).do(main) == ("ann", "ann", ["None", "ann", "bob"])


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"per_key_concurrency": 0}, ValueError),
        ({"per_key_concurrency": 1.5}, ValueError),
        ({"per_key_rate": "100"}, SettingsError),
        ({"per_key_rate": "0/1m"}, SettingsError),
        ({"per_key_rate": "10001/1h"}, SettingsError),
        ({"per_key_rate": 100}, SettingsError),
    ],
)
def test_a_wrong_limit_is_refused_before_anything_is_written(memory_world, limits, error):
    async def main(app):
        with pytest.raises(error):
            await app.queue("default").limit(depth=5, **limits)
        return await app.queues()

    assert worker(memory_world).do(main) == []


def test_a_wrong_key_is_refused_before_anything_is_written(memory_world):
    async def main(app):
        for key, error in (("", BadName), ("a\nb", BadName), ("x" * 10_000, LimitExceeded)):
            with pytest.raises(error):
                await app.submit(nap(), key=key)
        with pytest.raises(ValueError, match="2 runs need as many keys, not 1"):
            await app.submit_many([nap(), nap()], keys=["a"])
        return await app.runs()

    assert worker(memory_world).do(main) == []
