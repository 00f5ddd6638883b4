"""A process that waits for a run takes it over, unless a claimer of its fleet will claim it."""

import asyncio

import pytest

from outlast import step, workflow
from outlast.store.commands import Claim, RegisterWorker, Release
from outlast.testing import App


@step
async def note() -> str:
    return "noted"


@workflow
async def job() -> str:
    return await note()


@pytest.mark.parametrize("queue", ["served", "not-served"])
def test_released_run_of_any_queue_is_executed_where_it_is_awaited(queue):
    async def main(app):
        store = app.store
        await app.submit(job(), id="run", queue="elsewhere")
        store.acquire_liveness("other")
        store.commit([RegisterWorker("other", "host", 1, 1e6)])
        (row,) = store.commit([Claim("other", "token", ids=("run",))])[0]
        run = await app.start(job(), id="run")
        await asyncio.sleep(10)
        assert store.run("run").worker == "other"
        store.commit([Release(row.pk, row.fence, "it lets go")])
        return await run.result(timeout=1e4)

    queues = ["elsewhere"] if queue == "served" else ["default"]
    app = App(
        worker=True, workflows=[job], queues=queues, ramp=0, poll=2.0, heartbeat=0.5, lease=1e6
    )
    assert app.do(main) == "noted"
