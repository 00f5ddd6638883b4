"""An item that is acked, nacked, failed or cancelled is settled before the app is left."""

import asyncio

import pytest

from outlast.store.writer.inline_writer import InlineWriter
from outlast.testing import App, VirtualClock

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@pytest.mark.parametrize("said", ["ack", "nack"])
def test_item_is_settled_when_its_ack_or_nack_is_cancelled(said):
    """Write it all the same: a drain does not wait for it, and the dead letter is reported."""
    dead: list[str] = []

    async def main(app) -> None:
        engine, queue = app._open, app.queue("q")
        await queue.put(1, id="item")
        item = await queue.claim()
        saying = asyncio.create_task(getattr(item, said)())
        await asyncio.sleep(0)  # it is on its way to the store
        saying.cancel()
        await asyncio.wait([saying])
        assert saying.cancelled()
        await asyncio.sleep(1)
        assert app.store.run("q/item").status == ("done" if said == "ack" else "dead")
        assert engine.in_flight.held() == []
        assert (await app.drain()).left == []

    App(max_attempts=1, on_dead=lambda run: dead.append(run.id)).do(main)
    assert dead == ([] if said == "ack" else ["q/item"])


@pytest.mark.parametrize("drains", [True, False])
def test_app_closes_after_its_last_item_is_settled_and_the_hook_ended(monkeypatch, drains):
    """The store takes its time to write that it is a dead letter, and nobody else will tell of it."""
    flush, told = InlineWriter._flush, []

    async def on_dead(run) -> None:
        await asyncio.sleep(1)
        told.append(run.id)

    async def handle(_) -> None:
        await asyncio.sleep(5)
        raise ValueError

    async def main() -> None:
        async with App(clock=clock, max_attempts=1, on_dead=on_dead) as app:
            await app.queue("q").put(1, id="item")
            consumer = asyncio.create_task(app.queue("q").consume(handle))
            await asyncio.sleep(1)
            monkeypatch.setattr(
                InlineWriter, "_flush", lambda self: self._loop.call_later(0.1, flush, self)
            )
            if drains:
                app._shutdown.begin("now")
                await asyncio.shield(app._open.shutdown.finished)
            else:
                await asyncio.sleep(4.01)  # it has failed, and that is on its way to the store
                consumer.cancel()
        assert told == ["q/item"]
        await asyncio.wait([consumer])

    clock = VirtualClock()
    clock.run(main())


def test_item_fails_when_its_handler_raises_cancelled_error_unasked(world):
    """As of something that it has awaited: taken for the consumer's end it would be handled again and again, uncounted."""

    async def handle(item) -> None:
        done.append(item.attempts)
        await cut

    async def main(app) -> None:
        nonlocal cut
        cut = asyncio.get_running_loop().create_future()
        cut.cancel("cut")
        await app.queue("q").put(1, id="item")
        consumer = asyncio.create_task(app.queue("q").consume(handle))
        await asyncio.sleep(1000)
        consumer.cancel()

    cut: asyncio.Future[None]
    world.settings = {"max_attempts": 3}
    world.do(main)
    assert done == [1, 2, 3]
    row = world.row("q/item")
    assert (row.status, row.failures, row.interruptions) == ("dead", 3, 0)
    assert "CancelledError('cut')" in row.reason
