"""What is under way when the app closes: it ends, and nothing begins for a run that was given back."""

import asyncio
from contextlib import suppress

import pytest

from outlast import Draining, Outlast, StoreUnavailable, step, workflow

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work() -> int:
    done.append("begins")
    await asyncio.sleep(0.05)
    done.append("ends")
    return 1


@workflow
async def one() -> int:
    return await work()


def test_a_run_that_is_being_started_when_the_app_closes_does_not_begin_after_it(tmp_path):
    store = f"sqlite:///{tmp_path}/o.db"

    async def main() -> None:
        async with Outlast(store) as app:
            house = app._open
            starter = asyncio.create_task(app.start(one(), id="run"))
            await asyncio.sleep(0)
        await asyncio.wait([starter], timeout=10)
        assert starter.done()
        assert house.lives == {}
        async with Outlast(store) as app:
            assert await (await app.start(one(), id="run")).result(timeout=20) == 1

    asyncio.run(main())
    assert done == ["begins", "ends"]


def test_who_prunes_when_the_app_closes_is_told(address):
    @workflow
    async def nothing() -> None: ...

    async def main() -> None:
        async with Outlast(address) as app:
            ids = [f"r{n}" for n in range(500)]
            await asyncio.gather(*[app.submit(nothing(), id=id) for id in ids])
            await asyncio.gather(*[app.cancel(id) for id in ids])
            pruning = asyncio.create_task(app.prune(0, batch=1))
            await asyncio.sleep(0)
        await asyncio.wait([pruning], timeout=10)
        assert pruning.done()
        with suppress(StoreUnavailable):
            assert pruning.result() == len(ids)

    asyncio.run(main())


def test_what_is_asked_of_the_store_after_the_close_is_refused(address):
    async def main() -> None:
        async with Outlast(address) as app:
            house = app._open
        with pytest.raises(Draining, match="on its way out"):
            await asyncio.wait_for(house.start(one(), "run"), 10)

    asyncio.run(main())
    assert done == []
