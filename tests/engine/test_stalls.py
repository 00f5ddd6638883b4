"""A step or workflow that blocks the event loop is named."""

import asyncio
import inspect
import threading
import time

import pytest

from outlast import Outlast, step, workflow
from outlast.store.fleet import stalls_of
from support.waiting import WAIT_SECONDS


class Blocks:
    """Block the event loop until the watcher has named who does."""

    def __init__(self, caplog):
        self._caplog, self._deadline = caplog, time.monotonic() + WAIT_SECONDS

    def __call__(self, who):
        while not self.said("has been blocked", who) and time.monotonic() < self._deadline:
            time.sleep(0.01)

    def said(self, *words):
        """The first line with these words. A slow machine may have other stalls."""
        for record in list(self._caplog.records):
            if all(word in record.getMessage() for word in words):
                return record
        return None


def executed(address, call, counted):
    """Execute a workflow. Return its stalls on record, once this one is counted and written."""

    async def main():
        async with Outlast(address, signals=0, stall_warn=0.2) as app:
            await (await app.start(call)).result()
            name = counted[1] or counted[0]
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    found = [one for one in stalls_of(app._open.store) if one.step == name]
                    if found and counted in app._open.services.metrics.stalls.counts:
                        return found
                    await asyncio.sleep(0.01)

    return asyncio.run(main())


@pytest.fixture
def blocks(caplog):
    return Blocks(caplog)


def test_blocking_step_is_named_in_log_metrics_and_store(tmp_path, caplog, blocks):
    @step
    async def fetch() -> None:
        blocks(fetch.name)

    @workflow
    async def one() -> None:
        await fetch()

    [stall] = executed(f"sqlite:///{tmp_path}/store.db", one(), (one.name, fetch.name))
    began = blocks.said("has been blocked", fetch.name)
    assert f"step {fetch.name}#1 of run" in began.getMessage()
    assert f"{__file__}:{inspect.getsourcelines(Blocks.__call__)[1] + 2}" in began.getMessage()
    assert "`def` instead of `async def`" in began.getMessage()
    assert began.step == f"{fetch.name}#1"
    assert blocks.said("runs again after", fetch.name)
    assert stall.times == 1
    assert stall.seconds > 0.2


def test_blocking_workflow_is_named(tmp_path, caplog, blocks):
    @workflow
    async def one() -> None:
        blocks(one.name)

    assert executed(f"sqlite:///{tmp_path}/store.db", one(), (one.name, ""))
    assert blocks.said("has been blocked", f"workflow {one.name} in run")


def test_sync_step_does_not_block_the_loop(tmp_path, caplog):
    slept = threading.Event()

    @step
    def fetch() -> None:
        time.sleep(0.5)
        slept.set()

    @workflow
    async def one() -> None:
        await fetch.aio()

    async def main():
        async with Outlast(f"sqlite:///{tmp_path}/store.db", signals=0, stall_warn=0.2) as app:
            await (await app.start(one())).result()
            return app._open.services.metrics.stalls.counts

    assert (one.name, fetch.name) not in asyncio.run(main())
    assert slept.is_set()
