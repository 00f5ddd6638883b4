"""A drain during session calls completes those that have begun."""

import asyncio

from outlast import session, step, workflow
from outlast.store.commands import UpdateSession

held: list = []


@step
async def hold(n: int) -> int:
    held.append(n)
    await asyncio.sleep(5)
    return n


@workflow
async def talks(count: int) -> list:
    s = session("s")
    for n in range(count):
        await s.append("turns", n)
        await hold(n)
        await s.append("turns", -n)
    return await s.last("turns", None)


def test_drained_run_makes_each_change_once(world):
    held.clear()

    async def drains(app):
        await app.start(talks(3), id="run")
        while len(held) < 2:
            await asyncio.sleep(0.1)
        await app.drain("test", grace=30)
        return app.store.run("run").status

    assert world.do(drains) == "queued"
    assert world.store.items("s", "turns") == ["0", "0", "1"]
    world.restart()
    assert world.run(talks(3)) == [0, 0, 1, -1, 2, -2]
    assert held == [0, 1, 2]


@workflow
async def busy() -> int:
    s = session("s")
    for n in range(300):
        await s.append("turns", n, keep=10)
    return len(await s.last("turns", None))


def test_drain_leaves_no_change_half_made(world):
    async def drains(app):
        await app.start(busy(), id="run")
        while (app.store.session("s") or UpdateSession("s", "", {}, version=0)).version < 100:
            await asyncio.sleep(0)
        report = await app.drain("test", grace=30)
        return report, app.store.run("run")

    _, row = world.do(drains)
    assert row.status == "queued"
    changes = [entry for entry in world.journal() if entry.kind == "session"]
    assert world.store.session("s").version == len(changes)
    world.restart()
    assert world.run(busy()) == 10
    assert world.store.session("s").version == 300
