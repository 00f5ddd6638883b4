"""Drains at random moments of runs that do everything: nothing is lost or redone."""

import asyncio
import random
import time

import pytest
from drain_tools import act, begun, ended
from kubelet import LONG

from outlast import Outlast, current, sleep, step, workflow
from outlast.api.unit import unit
from outlast.testing import App
from support.waiting import wait_until_async


@step(retries=2, backoff=0.5)
async def piece(label: str, seconds: float, failures: int = 0) -> str:
    begun.append((label, current().attempt))
    await asyncio.sleep(seconds)
    if current().attempt <= failures:
        raise ValueError(label)
    ended.append(label)
    return label


@step
async def pieces(label: str) -> str:
    return await piece(f"{label}.1", 0.7) + await piece(f"{label}.2", 0.4, 1)


@workflow
async def little(label: str) -> str:
    await sleep(0.6)
    return await piece(label, 0.9)


@workflow
async def everything() -> list:
    async def ordered() -> str:
        async with unit("order"):
            return await piece("pay", 0.5) + await piece("ship", 0.5)

    async def timed() -> str:
        try:
            async with asyncio.timeout(1.3):
                return await piece("slow", 60)
        except TimeoutError:
            return "timed out"

    first = await piece("first", 0.3, 2)
    together = await asyncio.gather(
        ordered(),
        timed(),
        little("child"),
        pieces("inner"),
        piece("flaky", 0.8, 1),
        sleep(
            2,
        ),
    )
    return [first, *together, await little("last")]


RESULT = ["first", "payship", "timed out", "child", "inner.1inner.2", "flaky", None, "last"]


@step(name="in thread", retries=1, backoff=0.01)
def in_thread(label: str, seconds: float, failures: int = 0) -> str:
    begun.append((label, current().attempt))
    time.sleep(seconds)
    if current().attempt <= failures:
        raise ValueError(label)
    ended.append(label)
    return label


@step(name="outer in thread")
def outer_in_thread(label: str) -> str:
    return in_thread(f"{label}.1", 0.01) + in_thread(f"{label}.2", 0.02)


@workflow(name="sync part")
def sync_part(label: str) -> str:
    with unit("pair"):
        pair = in_thread(f"{label}.a", 0.01) + in_thread(f"{label}.b", 0.01)
    return pair + in_thread(f"{label}.c", 0.02, 1)


@workflow(name="mixed")
async def mixed(label: str) -> list:
    first = await in_thread.aio(f"{label}.first", 0.02, 1)
    rest = await asyncio.gather(
        sync_part(f"{label}.sync"),
        outer_in_thread.aio(f"{label}.outer"),
        sleep(0.05),
        act(f"{label}.act", 0.03),
    )
    return [first, *rest]


@pytest.mark.parametrize("seed", range(40 if LONG else 12))
def test_drains_at_any_time_lose_and_redo_nothing(seed):
    """With grace enough for every step: each one is completed once, over however many processes."""
    chance = random.Random(seed)
    app, lives = App(seed=seed), 0
    while True:
        lives += 1
        pause = chance.uniform(0.0, 2.5)

        async def main(app, pause=pause):
            run = await app.start(everything(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=pause)
            report = await app.drain("again")
            assert report.left == []
            assert report.checkpointed == 0
            rows = [row for row in await app.runs() if row.status == "running"]
            assert rows == [], "everything is released"
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + lives).do(main)
        app.clock.advance(chance.uniform(0.0, 1.0))
        if result is not None:
            break
        assert lives < 60
    assert result == RESULT
    assert sorted(ended) == sorted(set(ended)), "no step is completed twice"
    again = {one for one in begun if begun.count(one) > 1}
    assert again <= {("inner.2", 1)}, (
        "no attempt is made twice; those of a step within a step are not recorded"
    )


@pytest.mark.parametrize("seed", range(20 if LONG else 6))
def test_drains_with_hardly_any_grace_redo_only_steps_under_way(seed):
    chance = random.Random(seed)
    app, lives = App(seed=seed), 0
    while True:
        lives += 1
        pause = chance.uniform(0.5, 4.0)

        async def main(app, pause=pause):
            run = await app.start(everything(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=pause)
            report = await app.drain("again", grace=0.2)
            assert report.left == []
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + lives, interruptions_max=1000).do(main)
        if result is not None:
            break
        assert lives < 100
    assert result == RESULT
    assert len(ended) == len(set(ended)), "what has ended is not redone"


def test_drains_of_real_workers_lose_and_redo_nothing(tmp_path):
    count = 6

    async def once(number):
        settings = {
            "worker": True,
            "workflows": [mixed, sync_part],
            "ramp": 0,
            "returned_rate": 1e6,
        }
        async with Outlast(f"sqlite:///{tmp_path}/a.db", signals=0, **settings) as app:
            if number == 0:
                await app.submit_many(
                    [mixed(str(n)) for n in range(count)], ids=[str(n) for n in range(count)]
                )
            rest = [app.result(str(n)) for n in range(count)]
            waiting, before = asyncio.gather(*rest), len(begun)
            await wait_until_async(lambda: waiting.done() or len(begun) >= before + 1 + number % 7)
            report = await app.drain("again", grace=600)
            assert report.left == []
            assert report.blocked == []
            over = waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])
            statuses = {run.status for run in await app.runs()}
            assert "running" not in statuses, report
            return over

    for number in range(100):  # each makes some progress
        if asyncio.run(once(number)):
            break
    else:
        pytest.fail("it does not come to an end")
    assert sorted(ended) == sorted(set(ended)), "no step is completed twice"
    assert len(ended) == count * 7
    again = {one for one in begun if begun.count(one) > 1}
    assert again == set()
