"""Keep connections open and answer nothing: workers connect again, or another worker takes over."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from outlast import Outlast, StoreUnavailable, step, workflow
from outlast.store.address import store_at
from support.clocks import MovableClock, let_lease_run_out
from support.fault_proxy import FaultProxy, proxied_store
from support.waiting import WAIT_SECONDS, wait_until_async

pytestmark = pytest.mark.timeout(300)
LEASE_SECONDS = 4.0
"""A call to the store may take a quarter of it. No other worker is open that could sweep this one."""
OPTIONS = {"lease": LEASE_SECONDS, "heartbeat": 0.5, "poll": 0.5, "ramp": 0.0}
STEPS = 6
RESULT = sum(range(STEPS))

executed: list[tuple[str, int]] = []


@step
async def count(run: str, number: int) -> int:
    executed.append((run, number))
    await asyncio.sleep(0.1)
    return number


@workflow
async def counting(run: str) -> int:
    return sum([await count(run, number) for number in range(STEPS)])


class Place(NamedTuple):
    """A store by two addresses: through a proxy, and past it."""

    proxy: FaultProxy
    through: str
    direct: str


@pytest.fixture(params=["postgres", "redis"])
def place_behind_proxy(request) -> Iterator[Place]:
    """Yield a store whose tables exist, so that no call of a test has to create them."""
    executed.clear()
    server = request.getfixturevalue(f"{request.param}_server").url
    with proxied_store(server) as proxied:
        place = Place(*proxied)
        store = store_at(place.direct)
        store.open()
        store.close()
        yield place


def test_worker_connects_again_when_all_its_connections_go_silent(place_behind_proxy):
    """New connections are answered. The runs go on, and no step is executed twice."""
    proxy, through, _ = place_behind_proxy

    async def main() -> None:
        async with Outlast(through, worker=True, workflows=[counting], **OPTIONS) as app:
            runs = [await app.submit(counting(f"r{n}"), id=f"r{n}") for n in range(3)]
            await wait_until_async(lambda: len(executed) > 5)
            proxy.go_silent(*proxy.links)
            results = await asyncio.gather(*(run.result(timeout=WAIT_SECONDS) for run in runs))
            assert results == [RESULT] * 3

    asyncio.run(main())
    assert len(executed) == len(set(executed)) == 3 * STEPS


def test_another_worker_takes_over_when_no_connection_answers(place_behind_proxy, tmp_path):
    """The silent worker says that it is not ready, its calls end, and so does leaving it."""
    proxy, through, direct = place_behind_proxy
    clock = MovableClock(tmp_path)

    def app_at(address: str, **options: float) -> Outlast:
        store = store_at(address, clock=clock, heartbeat=0.5)
        return Outlast(store, worker=True, workflows=[counting], **{**OPTIONS, **options})

    async def main() -> None:
        silent = app_at(through, store_patience=3.0)
        await silent.__aenter__()
        run = await silent.submit(counting("r"), id="r")
        await wait_until_async(lambda: executed)
        assert silent.status_provider.ready() is None
        proxy.go_silent()
        calls = (
            silent.submit(counting("new"), id="new"),
            silent.send("r", "name", 1),
            silent.runs(),
            run.result(timeout=WAIT_SECONDS),
        )
        outcomes = await asyncio.wait_for(
            asyncio.gather(*calls, return_exceptions=True), WAIT_SECONDS
        )
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * len(calls)
        await wait_until_async(silent.status_provider.ready)
        assert "the lease cannot be renewed" in silent.status_provider.ready()
        await asyncio.to_thread(let_lease_run_out, direct, clock, LEASE_SECONDS)
        async with app_at(direct, lease=60.0) as healthy:
            assert (
                await (await healthy.start(counting("r"), id="r")).result(timeout=WAIT_SECONDS)
                == RESULT
            )
            await asyncio.wait_for(silent.__aexit__(None, None, None), WAIT_SECONDS)

    asyncio.run(main())
