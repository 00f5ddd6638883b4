"""Run workflows, damage their store, and check it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from outlast import KEY, Happened, Outlast, compensate_with, effect, receive, step, unit, workflow
from outlast.store.address import store_at
from outlast.tools.chaos.checks import check
from outlast.tools.chaos.findings import Scope
from support.waiting import WAIT_SECONDS


@effect(timeout=1)
async def pay(amount: int, key: str = KEY) -> str:
    return key


@pay.verify
async def was_paid(key: str = KEY) -> Happened[str] | None:
    return None


@pay.compensate
async def pay_back(key: str, effect_key: str) -> str:
    return effect_key


@effect(timeout=1, undo=None, idempotent=True)
async def tidy(key: str = KEY) -> None:
    pass


@step
async def think(number: int) -> int:
    return number


class Enough(Exception):
    pass


@workflow
async def good(number: int) -> int:
    await pay(number)
    return await think(number)


@workflow
async def bad(number: int) -> int:
    await compensate_with(tidy)
    await pay(number)
    await pay(number + 1)
    await child(number)
    raise Enough(number)


@workflow
async def child(number: int) -> int:
    await pay(number)
    return number


@workflow
async def mixed(number: int) -> int:
    await pay(number)
    try:
        async with unit("first"):
            await pay(number)
            raise Enough(number)
    except Enough:
        return await think(number)


@workflow
async def endless(number: int) -> int:
    await pay(number)
    await receive("never")
    return number


def fill(address: str) -> None:
    async def main() -> None:
        async with Outlast(
            address, worker=True, ramp=0, workflows=[good, bad, child, mixed, endless]
        ) as app:
            runs = [await app.submit(flow(7), id=flow.name) for flow in (good, bad, mixed, endless)]
            for run in runs[:3]:
                await asyncio.wait([asyncio.ensure_future(run.result(WAIT_SECONDS))])
            while (await app.runs(status="waiting")) == [] and "pay#1" not in str(
                await app.journal("endless")
            ):
                await asyncio.sleep(0.01)
            await app.cancel("endless", "enough")
            await asyncio.wait([asyncio.ensure_future(runs[3].result(WAIT_SECONDS))])

    asyncio.run(main())


def judged(address, **scope):
    store = store_at(address if "://" in str(address) else f"sqlite:///{address}")
    store.open()
    with closing(store):
        return check(store, Scope(**{"since": 0.0, "thorough": True, **scope}))


def tamper(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(sql, values).rowcount > 0, "nothing was tampered with"


def alarms(verdict) -> dict:
    return {one.name: one.evidence for one in verdict.checks if one.outcome == "violated"}


OF = "run = (SELECT pk FROM runs WHERE id = ?)"
