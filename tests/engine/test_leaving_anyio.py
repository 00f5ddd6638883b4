"""Leaving an app inside a cancelled anyio scope."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

from outlast import Outlast, step, workflow

TURNS = 2000
"""Turns of the loop for which a step goes on that was told to stop."""
CANCELS_MAX = 10
"""How often the leaving task may be cancelled. anyio cancels it at each turn unless it is shielded."""

happened: list[str] = []


class Leaver(asyncio.Task):
    """A task that counts its cancellations."""

    cancels = 0

    def cancel(self, msg=None):
        self.cancels += 1
        return super().cancel(msg)


def executed(main) -> Leaver:
    loop = asyncio.new_event_loop()
    try:
        task = Leaver(main, loop=loop)
        loop.run_until_complete(task)
        assert task.cancelling() == 0
        return task
    finally:
        loop.close()


def stubborn_agent(begun: asyncio.Event, stopping=lambda: None):
    @step
    async def stubborn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopping()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        happened.append("stopped")

    @workflow
    async def agent() -> None:
        await stubborn()

    return agent()


@asynccontextmanager
async def lifespan(_):
    yield
    await asyncio.sleep(0)
    happened.append("lifespan")


async def clean_up() -> None:
    await asyncio.sleep(0)
    happened.append("clean-up")


@pytest.fixture(autouse=True)
def _fresh():
    happened.clear()


def test_block_is_left_completely_after_its_anyio_scope_is_cancelled():
    async def main():
        begun = asyncio.Event()
        with anyio.CancelScope() as scope:
            async with Outlast("memory:", lifespan=lifespan, signals=0, close_timeout=60) as app:
                app.on_cleanup(clean_up)
                await app.start(stubborn_agent(begun))
                await begun.wait()
                scope.cancel()
                await asyncio.sleep(0)
            happened.append("never")
        assert scope.cancelled_caught

    assert executed(main()).cancels <= CANCELS_MAX
    assert happened == ["stopped", "clean-up", "lifespan"]


def test_a_scope_that_is_cancelled_while_the_block_is_left_interrupts_once():
    async def main():
        begun = asyncio.Event()
        with anyio.CancelScope() as scope:
            async with Outlast("memory:", signals=0, close_timeout=60) as app:
                app.on_cleanup(clean_up)
                await app.start(stubborn_agent(begun, scope.cancel))
                await begun.wait()
            happened.append("never")
        assert scope.cancelled_caught

    assert executed(main()).cancels <= CANCELS_MAX
    assert happened == ["stopped", "clean-up"]


def test_a_cancellation_of_asyncio_still_reaches_the_task_that_leaves():
    async def main():
        begun, leaver = asyncio.Event(), asyncio.current_task()
        assert leaver is not None
        with anyio.CancelScope():
            try:
                async with Outlast("memory:", signals=0, close_timeout=60) as app:
                    await app.start(stubborn_agent(begun, lambda: leaver.cancel("enough")))
                    await begun.wait()
            except asyncio.CancelledError as cancelled:
                happened.append(str(cancelled))
                leaver.uncancel()

    executed(main())
    assert happened == ["stopped", "enough"]
