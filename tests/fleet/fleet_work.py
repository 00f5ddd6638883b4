"""Work, workers and gates that the one-process fleet tests share."""

import asyncio
import threading
from collections import Counter

import pytest

from outlast import Outlast, receive, sleep, step, workflow
from outlast.engine.notifier import Burst
from outlast.store.commands import DeregisterWorker
from outlast.testing import App
from support.waiting import WAIT_SECONDS, wait_until_async

FAST = {"ramp": 0, "poll": 0.2, "heartbeat": 0.05, "close_timeout": 60.0, "lease": 60.0}
RARELY = {**FAST, "poll": 3600.0}
"""A poll that cannot help."""

begun: list = []
under_way: Counter = Counter()
most: Counter = Counter()
gates: dict = {}


@pytest.fixture(autouse=True)
def fresh():
    for kept in (begun, under_way, most, gates):
        kept.clear()
    yield
    for gate in gates.values():  # no thread may outlive a test that failed
        gate.set()


@step
async def note(label: str, seconds: float = 0.0) -> str:
    begun.append(label)
    under_way[label] += 1
    most[label] = max(most[label], under_way[label])
    try:
        await asyncio.sleep(seconds)
    finally:
        under_way[label] -= 1
    return label


@workflow
async def job(label: str, seconds: float = 0.0) -> str:
    return await note(label, seconds)


@step
async def pass_gate(label: str) -> str:
    begun.append(label)
    await gates[label].wait()
    return label


@workflow
async def gated(label: str) -> str:
    return await pass_gate(label)


@step
def block(label: str) -> str:
    """In a thread, which nothing can stop."""
    begun.append(label)
    under_way[label] += 1
    most[label] = max(most[label], under_way[label])
    most["runs"] = max(most["runs"], sum(1 for count in under_way.values() if count))
    gates[label].wait(WAIT_SECONDS)
    under_way[label] -= 1
    return label


@workflow
async def blocked(label: str) -> str:
    return await block.aio(label)


@workflow
async def agent() -> None:
    """Always under way: it never leaves the hands of its worker."""
    number = 0
    while True:
        await note(f"turn {number}")
        number += 1
        await asyncio.sleep(0.02)


@workflow
async def nap(seconds: float) -> str:
    await sleep(seconds)
    return "slept"


async def _mind(call) -> str:
    return await call


@workflow
async def watcher(seconds: float) -> str:
    child = asyncio.create_task(_mind(nap(seconds)))
    while not child.done():
        await asyncio.sleep(0.5)
    return child.result()


@workflow
async def family() -> str:
    """Looks after its child itself, so that it is never released."""
    await pass_gate("family")
    child = asyncio.create_task(_mind(job("child")))
    while not child.done():
        await asyncio.sleep(0.05)
    return child.result()


@workflow
async def letter(label: str) -> str:
    await note(label)
    return await receive("go", str)


WORKFLOWS = [job, gated, blocked, agent, nap, watcher, family, letter]


def worker(store="memory:", **settings) -> Outlast:
    return Outlast(store, worker=True, workflows=WORKFLOWS, **{**FAST, **settings})


def virtual(**settings) -> App:
    return App(worker=True, workflows=WORKFLOWS, **{"ramp": 0, "new_share": 0, **settings})


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until_idle(app, claimer) -> None:
    """It has seen all there is by now, and sleeps."""
    changes, ended, round = app._open.notifier, [], claimer._round

    async def counted():
        pause = await round()
        ended.append(pause)
        return pause

    await wait_until_async(lambda: not changes._is_scheduled and changes._burst is Burst.NONE)
    claimer._round = counted
    claimer.wake()
    await wait_until_async(lambda: ended and not claimer._wake.is_set())


async def lose_the_worker(app) -> None:
    """Deregister the worker as if it were dead. It notices."""
    engine = app._open
    old = engine.worker.id
    await engine.writer.execute(DeregisterWorker(old))
    await engine.worker.register(instead_of=old)
    assert engine.worker.id != old


async def statuses(app, **query) -> dict[str, str]:
    return {info.id: info.status for info in await app.runs(**query)}


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("outlast")}
