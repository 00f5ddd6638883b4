"""Agents that are a `while True`: run_until_drain, wait_drain, units and unhealthy."""

import asyncio

import pytest

from outlast import Draining, Outlast, step, workflow
from outlast.testing import App

seen: list = []


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


def drain_after(app, seconds, **options):
    async def later():
        await asyncio.sleep(seconds)
        return await app.drain("test", **options)

    return asyncio.create_task(later())


async def forever():
    while True:
        await asyncio.sleep(1)


# -- run_until_drain


def test_run_until_drain_returns_the_value_of_the_coroutine():
    async def agent():
        await asyncio.sleep(5)
        return 42

    assert App().do(lambda app: app.run_until_drain(agent())) == 42


def test_a_drain_cancels_the_agent_and_says_why():
    async def agent():
        try:
            await forever()
        except asyncio.CancelledError as cancelled:
            seen.append(str(cancelled))
            raise

    async def main(app):
        drain = drain_after(app, 3.5)
        value = await app.run_until_drain(agent())
        return value, app.clock() - app.clock.start, await drain

    value, at, report = App().do(main)
    assert (value, seen, report.left) == (None, ["drain: test"], [])
    assert at == pytest.approx(3.5, abs=0.2)


def test_the_drain_waits_for_the_agent_to_clean_up():
    async def agent():
        try:
            await forever()
        finally:
            await asyncio.sleep(2)
            seen.append("cleaned")

    async def main(app):
        drain = drain_after(app, 1)
        task = asyncio.create_task(app.run_until_drain(agent()))
        await drain
        assert seen == ["cleaned"], "the drain is not over before"
        return await task

    assert App().do(main) is None


def test_an_agent_is_not_cancelled_within_a_unit():
    async def agent(app):
        number = 0
        while True:
            async with app.unit("order"):
                seen.append(f"pay {number}")
                await asyncio.sleep(2)
                seen.append(f"ship {number}")
                await asyncio.sleep(2)
            number += 1

    async def main(app):
        drain = drain_after(app, 5)
        value = await app.run_until_drain(agent(app))
        await drain
        return value, app._open.services.totals.committed, app._open.services.totals.rolled_back

    assert App().do(main) == (None, 2, 0)
    assert seen == ["pay 0", "ship 0", "pay 1", "ship 1"]


def test_an_agent_starts_no_further_unit():
    async def agent(app):
        while True:
            async with app.unit("order"):
                await asyncio.sleep(1)
                seen.append("order")

    async def main(app):
        drain = drain_after(app, 2.5)
        value = await app.run_until_drain(agent(app))
        report = await drain
        return value, report.seconds, report.left

    value, seconds, left = App().do(main)
    assert (value, left, seen) == (None, [], ["order"] * 3)
    assert seconds < 1


def test_only_nested_units_begin_in_a_drain():
    async def main(app):
        async with app.unit("outer"):
            drain = asyncio.create_task(app.drain("test"))
            await asyncio.sleep(0.1)
            async with app.unit("inner"):
                seen.append("inner")
        with pytest.raises(Draining):
            async with app.unit("another"):
                seen.append("another")
        with pytest.raises(Draining):
            with app.unit("another"):
                seen.append("another")
        await drain

    App().do(main)
    assert seen == ["inner"]


def test_an_endless_unit_is_cancelled_with_the_reserve_to_clean_up():
    async def agent(app):
        async with app.unit("endless"):
            try:
                await asyncio.sleep(1e6)
            finally:
                seen.append(app.clock())
                await asyncio.sleep(2)
                seen.append("cleaned")

    async def main(app):
        drain = drain_after(app, 1)
        value = await app.run_until_drain(agent(app))
        report = await drain
        return value, report

    app = App()
    value, report = app.do(main)
    assert (value, report.left) == (None, [])
    assert seen[0] - app.clock.start == pytest.approx(1 + 30 - 5.3, abs=0.3), (
        "with the reserve to clean up"
    )
    assert seen[1] == "cleaned"


def test_an_agent_that_swallows_its_cancellation_is_left_behind():
    async def agent():
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                seen.append("swallowed")

    async def main(app):
        drain = drain_after(app, 1, grace=10)
        value = await app.run_until_drain(agent())
        report = await drain
        return value, app.clock() - app.clock.start, report

    value, at, report = App().do(main)
    assert value is None
    assert "swallowed" in seen
    assert at <= 11
    assert [(one.what, one.why) for one in report.left] == [("agent", "it has not ended")]


def test_run_until_drain_raises_the_error_of_the_agent():
    async def agent():
        await asyncio.sleep(1)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        App().do(lambda app: app.run_until_drain(agent()))


def test_run_until_drain_raises_an_error_of_the_clean_up():
    async def agent():
        try:
            await forever()
        except asyncio.CancelledError:
            raise ConnectionError("while cleaning up") from None

    async def main(app):
        drain = drain_after(app, 1)
        with pytest.raises(ConnectionError):
            await app.run_until_drain(agent())
        return (await drain).left

    assert App().do(main) == []


def test_draining_raised_by_an_agent_in_a_drain_is_not_an_error():
    async def agent(app):
        while True:
            await app.queue("q").put(1)
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                await app.queue("q").put(2)

    async def main(app):
        drain = drain_after(app, 2.5)
        value = await app.run_until_drain(agent(app))
        await drain
        return value, await app.queue("q").size()

    assert App().do(main) == (None, 3)


def test_draining_raised_by_an_agent_without_a_drain_is_an_error():
    async def agent():
        raise Draining("its own")

    with pytest.raises(Draining, match="its own"):
        App().do(lambda app: app.run_until_drain(agent()))


def test_cancelling_run_until_drain_cancels_the_agent_and_waits_for_it():
    async def agent():
        try:
            await forever()
        finally:
            await asyncio.sleep(2)
            seen.append("cleaned")

    async def main(app):
        task = asyncio.create_task(app.run_until_drain(agent()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cleaned"]
        return app.draining

    assert App().do(main) is False


def test_run_until_drain_can_be_cancelled_in_a_drain():
    async def agent():
        try:
            await forever()
        finally:
            await asyncio.sleep(2)
            seen.append("cleaned")

    async def main(app):
        task = asyncio.create_task(app.run_until_drain(agent()))
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await drain

    App().do(main)


def test_an_agent_does_not_start_in_a_drain():
    async def agent():
        seen.append("begun")

    async def main(app):
        await app.drain("test")
        return await app.run_until_drain(agent())

    assert App().do(main) is None
    assert seen == []


def test_an_agent_that_asks_for_the_drain_is_cancelled():
    async def agent(app):
        await app.drain("enough")
        seen.append("went on")

    async def main(app):
        return await app.run_until_drain(agent(app)), await app.drain()

    value, report = App().do(main)
    assert (value, report.reason, seen) == (None, "enough", [])
    assert report.seconds < 1


def test_several_agents_are_all_cancelled():
    async def main(app):
        agents = [asyncio.create_task(app.run_until_drain(forever())) for _ in range(20)]
        await asyncio.sleep(1)
        report = await app.drain("test")
        return await asyncio.gather(*agents), report.left, report.seconds

    values, left, seconds = App().do(main)
    assert (values, left) == ([None] * 20, [])
    assert seconds < 0.5


def test_an_agent_is_cancelled_while_runs_come_to_their_boundary():
    @step
    async def act(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "end"

    @workflow
    async def flow() -> list[str]:
        return [await act(5), await act(5)]

    async def main(app):
        await app.start(flow(), id="run")
        drain = drain_after(app, 1)
        value = await app.run_until_drain(forever())
        return value, await drain, app.store.run("run").status

    value, report, status = App().do(main)
    assert (value, report.released, report.left, status) == (None, 1, [], "queued")


def test_a_drain_cancels_an_agent_in_real_time(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            app._open.loop.call_later(0.1, app._shutdown.begin, "real")
            return await app.run_until_drain(forever()), await app.wait_drain()

    assert asyncio.run(main()) == (None, "real")


# -- wait_drain


def test_every_wait_drain_returns_the_reason():
    async def main(app):
        waiting = [asyncio.create_task(app.wait_drain()) for _ in range(3)]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        await app.drain("deploy")
        return await asyncio.gather(*waiting[1:]), await app.wait_drain(), await app.wait_drain()

    assert App().do(main) == (["deploy", "deploy"], "deploy", "deploy")


# -- unhealthy


def test_an_unhealthy_app_is_not_ready_until_it_is_healthy_again():
    async def main(app):
        answers = [app.status_provider.ready()]
        app.unhealthy("the model does not answer")
        answers.append(app.status_provider.ready())
        app.unhealthy(None)
        answers.append(app.status_provider.ready())
        app.unhealthy("again")
        await app.drain("deploy")
        answers.append(app.status_provider.ready())
        return answers

    assert App().do(main) == [
        None,
        "unhealthy: the model does not answer",
        None,
        "draining: deploy",
    ]


def test_an_unhealthy_app_goes_on_with_its_work():
    async def agent():
        await asyncio.sleep(5)
        return "end"

    async def main(app):
        app.unhealthy("x")
        return await app.run_until_drain(agent()), app.draining

    assert App().do(main) == ("end", False)
