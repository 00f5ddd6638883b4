"""Workflows that spend a budget, and what a person sees of them."""

from __future__ import annotations

import asyncio

from outlast import step, workflow
from outlast.testing import App


def spender(spend, calls: list[str], *, cost: float = 1.0, actual: float | None = None):
    """Return a workflow that makes paid calls, one after the other."""

    @step
    async def ask(name: str) -> str:
        async with spend.use(usd=cost) as used:
            calls.append(name)
            if actual is not None:
                used.actual(usd=actual)
        return name

    @workflow
    async def several(names: str) -> str:
        return "".join([await ask(name) for name in names])

    return several


async def parked(app, id: str):
    """Wait until a run is parked."""
    while True:
        info = next(one for one in await app.runs(prefix=id) if one.id == id)
        if info.status == "parked":
            return info
        await asyncio.sleep(0.1)


async def until_done(app, id: str) -> None:
    """Wait until a run is done, though it may be parked before."""
    while next(one for one in await app.runs(prefix=id) if one.id == id).status != "done":
        await asyncio.sleep(1)


async def spent_of(app, id: str) -> dict[str, float]:
    """Return what counts as spent of a budget."""
    (info,) = await app.budgets(prefix=id)
    return info.spent


def spent(world, id: str) -> dict[str, float]:
    return world.do(lambda app: spent_of(app, id))


def worker(world, *workflows, **settings) -> App:
    options = {"ramp": 0, "poll": 5.0, "heartbeat": 1e4, "lease": 1e6, "concurrency": 1}
    return App(
        world.open(), clock=world.clock, worker=True, workflows=workflows, **(options | settings)
    )


def spent_ids(world) -> list[str]:
    async def main(app):
        return [info.id for info in await app.budgets()]

    return world.do(main)
