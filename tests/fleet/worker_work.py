"""Workflows and helpers that the tests of one worker on the virtual clock share."""

import asyncio

import pytest

from outlast import (
    effect,
    receive,
    sleep,
    step,
    workflow,
)
from outlast.store.commands import Claim, RegisterWorker
from outlast.testing import App

done: list = []


@pytest.fixture(autouse=True)
def fresh_work():
    done.clear()


@step
async def note(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    return label


@workflow
async def job(label: str, seconds: float = 0.0) -> str:
    return await note(label, seconds)


@workflow
async def nap(seconds: float) -> str:
    await note("before")
    await sleep(seconds)
    return await note("after")


@workflow
async def letter() -> str:
    return await receive("go", str)


@workflow
async def parent(seconds: float) -> str:
    return "child said " + await nap(seconds)


@workflow
async def strange(label: str) -> str:
    return label


WORKFLOWS = [job, nap, letter, parent]


def worker(**settings) -> App:
    return App(worker=True, workflows=WORKFLOWS, **{"ramp": 0, "new_share": 0, **settings})


@effect(timeout=1, undo=None)
async def post() -> str:
    raise ConnectionError("the line was cut")


@workflow
async def posting() -> str:
    return await post()


def yielding(item):
    yield item


async def yielding_later(item):
    yield item


def claimed_elsewhere(store, id):
    store.acquire_liveness("elsewhere")
    store.commit([RegisterWorker("elsewhere", "host", 1, 1e6)])
    return store.commit([Claim("elsewhere", f"claim of {id}", ids=(id,))])[0]


def died(store, worker):
    from outlast.store.commands import Sweep

    store.release_liveness(worker)
    return store.commit([Sweep(backoff=0.0)])[0]
