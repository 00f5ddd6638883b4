"""Workers go on, or let go, when a server or the network between keeps a connection open and says nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from outlast import Outlast, StoreUnavailable, step, workflow
from support.fault_proxy import FaultProxy, proxied_store
from support.waiting import wait_until_async

pytestmark = pytest.mark.timeout(300)
OPTIONS = {"lease": 8.0, "heartbeat": 0.5, "poll": 0.5, "ramp": 0.0, "store_patience": 6.0}
ENDS_SECONDS = 120.0

executed: list[tuple[str, int]] = []


@step
async def count(run: str, number: int) -> int:
    executed.append((run, number))
    await asyncio.sleep(0.2)
    return number


@workflow
async def counting(run: str) -> int:
    return sum([await count(run, number) for number in range(10)])


@pytest.fixture(params=["postgres", "redis"])
def proxied(request) -> Iterator[tuple[FaultProxy, str, str]]:
    """A proxy, and one store by two addresses: through the proxy, and past it."""
    executed.clear()
    server = request.getfixturevalue(f"{request.param}_server").url
    with proxied_store(server) as proxied:
        yield proxied


def test_runs_go_on_when_every_connection_of_their_worker_goes_silent(proxied):
    """New connections are answered: the worker replaces the silent ones, and nothing is executed twice."""
    proxy, through, _ = proxied

    async def main() -> None:
        async with Outlast(through, worker=True, workflows=[counting], **OPTIONS) as app:
            runs = [await app.submit(counting(f"r{n}"), id=f"r{n}") for n in range(3)]
            await wait_until_async(lambda: len(executed) > 5)
            proxy.go_silent(*proxy.links)
            results = await asyncio.gather(*(run.result(timeout=ENDS_SECONDS) for run in runs))
            assert results == [45, 45, 45]

    asyncio.run(main())
    assert len(executed) == len(set(executed)) == 30


def test_another_worker_takes_over_when_no_connection_answers(proxied):
    """The silent worker says that it is not ready, its calls end, and so does leaving it."""
    proxy, through, direct = proxied

    async def main() -> None:
        silent = Outlast(through, worker=True, workflows=[counting], **OPTIONS)
        await silent.__aenter__()
        run = await silent.submit(counting("r"), id="r")
        await wait_until_async(lambda: executed)
        assert silent.face.ready() is None
        proxy.go_silent()
        async with Outlast(direct, worker=True, workflows=[counting], **OPTIONS) as healthy:
            calls = (
                silent.submit(counting("new"), id="new"),
                silent.send("r", "name", 1),
                silent.runs(),
                run.result(timeout=ENDS_SECONDS),
            )
            outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), ENDS_SECONDS)
            assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * len(calls)
            await wait_until_async(silent.face.ready)
            assert "the lease cannot be renewed" in silent.face.ready()
            assert await (await healthy.start(counting("r"), id="r")).result(timeout=ENDS_SECONDS) == 45
            await asyncio.wait_for(silent.__aexit__(None, None, None), ENDS_SECONDS)

    asyncio.run(main())
