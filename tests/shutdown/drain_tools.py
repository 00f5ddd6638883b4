"""Workflows that write down which of their steps began and ended, and drains of them."""

import asyncio

from outlast import receive, sleep, step, workflow
from outlast.testing import App

begun: list = []

ended: list = []


@step
async def act(label: str, seconds: float = 0.0) -> str:
    begun.append(label)
    await asyncio.sleep(seconds)
    ended.append(label)
    return label


@step
def sync_act(label: str) -> str:
    begun.append(label)
    ended.append(label)
    return label


@workflow
async def chain(seconds: float = 5.0) -> list[str]:
    return [await act("a", seconds), await act("b", seconds), await act("c", seconds)]


@workflow
async def nap(seconds: float) -> str:
    await sleep(seconds)
    return "woken"


@workflow
async def letter() -> str:
    return await receive("go", str)


@workflow
async def one(label: str, seconds: float = 5.0) -> str:
    return await act(label, seconds)


WORKFLOWS = [chain, nap, letter, one]


def worker(store=None, **settings) -> App:
    settings = {"ramp": 0, "new_share": 0, "workflows": WORKFLOWS, **settings}
    return App(store, worker=True, **settings)


def drained(world, call, *, after: float = 1.0, grace: float | None = None, id: str = "run"):
    """Start a run, drain a moment later: the report and how long the drain took."""

    async def main(app):
        await app.start(call, id=id)
        await asyncio.sleep(after)
        began = app.clock()
        report = await app.drain("test", grace=grace)
        return report, app.clock() - began

    return world.do(main)


def last(world, id="run"):
    return world.journal(id)[-1]
