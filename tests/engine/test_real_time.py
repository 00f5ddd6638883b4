"""Restarts and concurrency in real time, with the writer's thread."""

import asyncio

import pytest

from outlast import Outlast, current, receive, step, workflow
from support.waiting import WAIT_SECONDS

done: list[str] = []
seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()
    seen.clear()


@step(retries=3)
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(f"{label} {current().attempt}")
    await asyncio.sleep(seconds)
    return label


def test_run_survives_a_restart_of_the_app_in_real_time(tmp_path):
    @workflow
    async def waits() -> str:
        return await receive("word", str)

    store = f"sqlite:///{tmp_path}/real.db"

    async def main() -> str:
        async with Outlast(store, heartbeat=0.05) as first:
            await first.start(waits(), id="run")
        async with (
            Outlast(store, heartbeat=0.05) as first,
            Outlast(store, heartbeat=0.05) as second,
        ):
            run = await first.start(waits(), id="run")
            joined = await second.start(waits(), id="run")
            await second.send("run", "word", "hello")
            results = await asyncio.gather(
                run.result(timeout=WAIT_SECONDS), joined.result(timeout=WAIT_SECONDS)
            )
            assert len(set(results)) == 1
            return results[0]

    assert asyncio.run(main()) == "hello"


def test_fifty_concurrent_runs_each_end_once_in_real_time(address):
    @workflow
    async def many(n: int) -> list[str]:
        return await asyncio.gather(*[work(f"{n}-{m}") for m in range(5)])

    async def main() -> None:
        async with Outlast(address) as app:
            runs = [await app.start(many(n), id=f"r{n}") for n in range(50)]
            results = await asyncio.gather(*[run.result(timeout=WAIT_SECONDS) for run in runs])
            assert results == [[f"{n}-{m}" for m in range(5)] for n in range(50)]

    asyncio.run(main())
    assert len(done) == 250
