"""Clean-up hooks: newest first, the lifespan last, each bounded. A failed hook is reported and stops nothing."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from outlast import Outlast, step, workflow
from outlast.shutdown.report import DrainReport
from outlast.testing import App
from support.waiting import WAIT_SECONDS

done: list = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


def hook(name, error=None, seconds=0.0):
    async def clean():
        await asyncio.sleep(seconds)
        done.append(name)
        if error is not None:
            raise error

    clean.__qualname__ = name
    return clean


@asynccontextmanager
async def lifespan(_):
    done.append("open")
    yield
    done.append("lifespan")


def left(app, *hooks, drain=True, grace=None, **timeouts):
    """Open, add hooks, drain if asked to, leave. The report that was stored, and how long leaving took."""
    times = []

    async def main():
        async with app:
            for one in hooks:
                app.on_cleanup(one, **timeouts)
            if drain:
                await app.drain("test", grace=grace)
            times.append(app.clock())
        times.append(app.clock())

    app.clock.run(main())
    rows = app.store.drains(5)
    return (DrainReport.of(rows[0]) if rows else None), times[1] - times[0]


def test_hooks_are_called_newest_first_and_the_lifespan_ends_last():
    report, _ = left(App(lifespan=lifespan), hook("first"), hook("second"), hook("third"))
    assert done == ["open", "third", "second", "first", "lifespan"]
    assert [(one.name, one.error) for one in report.cleanup] == [
        ("third", None),
        ("second", None),
        ("first", None),
        ("lifespan", None),
    ]


def test_hooks_are_called_without_a_drain():
    report, _ = left(App(lifespan=lifespan), hook("first"), hook("second"), drain=False)
    assert (done, report) == (["open", "second", "first", "lifespan"], None)


def test_a_plain_function_is_called_in_a_thread():
    threads = []

    def clean():
        threads.append(threading.current_thread())

    left(App(), clean)
    assert threads[0] is not threading.main_thread()


def test_an_object_with_an_async_call_is_awaited():
    class Clean:
        async def __call__(self):
            done.append(threading.current_thread() is threading.main_thread())

    left(App(), Clean(), lambda: done.append("lambda"))
    assert done == ["lambda", True]


def test_a_plain_function_may_return_an_awaitable():
    made = hook("made")

    def clean():
        return made()

    left(App(), clean)
    assert done == ["made"]


@pytest.mark.parametrize(
    "error", [ValueError("broken"), TimeoutError("mine"), asyncio.CancelledError("odd")]
)
@pytest.mark.parametrize("drain", [True, False])
def test_a_failed_hook_is_reported_and_the_next_is_called(error, drain, caplog):
    report, _ = left(
        App(lifespan=lifespan), hook("first"), hook("fails", error), hook("last"), drain=drain
    )
    assert done == ["open", "last", "fails", "first", "lifespan"]
    assert "Clean-up hook fails failed" in caplog.text
    if drain:
        outcomes = {one.name: one.error for one in report.cleanup}
        assert type(error).__name__ in outcomes["fails"]
        assert outcomes["first"] is outcomes["last"] is outcomes["lifespan"] is None


def test_a_hook_that_fails_in_a_thread_is_reported():
    def fails():
        raise OSError("disk")

    report, _ = left(App(), hook("first"), fails)
    assert done == ["first"]
    assert "disk" in report.cleanup[0].error


def test_a_lifespan_that_fails_at_its_end_is_reported_in_a_drain_and_raised_without():
    @asynccontextmanager
    async def failing(_):
        yield
        raise RuntimeError("pool")

    report, _ = left(App(lifespan=failing), hook("first"))
    assert "pool" in report.cleanup[-1].error
    with pytest.raises(RuntimeError, match="pool"):
        left(App(lifespan=failing), hook("first"), drain=False)
    assert done == ["first", "first"]


def test_a_hung_hook_gets_its_share_and_the_others_are_called():
    """Three hooks share ten seconds of grace, less a reserve. A quick hook leaves more to the others."""
    report, seconds = left(
        App(lifespan=lifespan), hook("first"), hook("hangs", seconds=1e6), hook("last"), grace=10
    )
    assert done == ["open", "last", "first", "lifespan"]
    outcome = next(one for one in report.cleanup if one.name == "hangs")
    assert "took longer" in outcome.error
    assert 2 < outcome.seconds < 5
    assert seconds < 10


@pytest.mark.parametrize("count", [1, 3, 10])
def test_hung_hooks_share_the_budget_equally(count):
    hooks = [hook(f"hangs {number}", seconds=1e6) for number in range(count)]
    report, seconds = left(App(), *hooks, grace=10)
    assert seconds <= 9.6
    assert len([one for one in report.cleanup if one.error]) == count
    shares = [one.seconds for one in report.cleanup if one.error]
    assert max(shares) < 1.3 * min(shares), "equal parts"


def test_a_hook_timeout_can_only_shorten_its_share():
    report, seconds = left(App(), hook("hangs", seconds=1e6), grace=20, timeout=1.0)
    assert report.cleanup[0].seconds == pytest.approx(1.0, abs=0.2)
    assert seconds < 2
    report, seconds = left(App(), hook("hangs", seconds=1e6), grace=4, timeout=1000.0)
    assert seconds < 4


def test_a_hook_that_swallows_its_cancellation_is_left_behind():
    async def swallows():
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                done.append("swallowed")

    report, seconds = left(App(lifespan=lifespan), hook("first"), swallows, grace=10)
    assert seconds < 10
    assert "lifespan" in done
    assert "first" in done
    assert "took longer" in report.cleanup[0].error


def test_without_a_drain_hooks_have_the_close_timeout():
    _, seconds = left(App(close_timeout=5), hook("first"), hook("hangs", seconds=1e6), drain=False)
    assert done == ["first"]
    assert seconds <= 5.2


def test_a_hook_can_submit_and_read_but_not_start():
    from outlast import Draining

    @workflow
    async def flow() -> None:
        pass

    app = App()

    async def clean():
        await app.submit(flow(), id="submitted")
        with pytest.raises(Draining):
            await app.start(flow())
        done.append((await app.runs())[0].id)

    report, _ = left(app, clean)
    assert (done, report.cleanup[0].error) == (["submitted"], None)


def test_steps_have_ended_before_the_clean_up_begins():
    @step
    async def act() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            done.append("step")

    @workflow
    async def flow() -> None:
        await act()

    async def main(app):
        app.on_cleanup(hook("hook"))
        await app.start(flow())
        await asyncio.sleep(1)
        app._shutdown.begin("test")

    App(lifespan=lifespan).do(main)
    assert done == ["open", "step", "hook", "lifespan"]


def test_on_cleanup_takes_and_returns_a_callable():
    async def main(app):
        with pytest.raises(TypeError):
            app.on_cleanup("not a function")

        @app.on_cleanup
        def clean():
            done.append("decorated")

        assert callable(clean)

    App().do(main)
    assert done == ["decorated"]


def test_hooks_added_before_the_app_opens_are_called_once():
    app = App()
    app.on_cleanup(hook("early"))
    app.do(lambda _: asyncio.sleep(0))
    app.do(lambda _: asyncio.sleep(0))
    assert done == ["early"]


def test_a_hung_sync_hook_is_left_in_its_thread(address):
    gate = threading.Event()

    def hangs():
        gate.wait(WAIT_SECONDS)

    def quick():
        done.append("quick")

    async def main():
        app = Outlast(address, signals=0, grace=600)
        async with app:
            app.on_cleanup(quick)
            app.on_cleanup(hangs, timeout=0.2)
            await app.drain("test")

    try:
        asyncio.run(main())
        assert done == ["quick"]
    finally:
        gate.set()


def test_a_lifespan_ends_in_the_task_in_which_it_began():
    """Cancel scopes and task groups insist on it."""

    @asynccontextmanager
    async def grouped(_):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(1e9))
            yield
            task.cancel()
            done.append("ended")

    report, _ = left(App(lifespan=grouped))
    assert (done, report.cleanup[-1].error) == (["ended"], None)


def test_a_lifespan_that_raises_cancelled_error_is_reported():
    @asynccontextmanager
    async def odd(_):
        yield
        raise asyncio.CancelledError("odd")

    report, _ = left(App(lifespan=odd), hook("first"))
    assert "odd" in report.cleanup[-1].error


def test_a_hook_that_raises_cancelled_error_in_a_cancelled_app_is_reported():
    """As it is when a signal ended the program: its main task was cancelled."""
    app = App()

    async def main():
        async with app:
            app.on_cleanup(hook("first"))
            app.on_cleanup(hook("odd", asyncio.CancelledError("odd")))
            await app.drain("test")
            await asyncio.sleep(1e6)

    async def outer():
        task = asyncio.create_task(main())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    app.clock.run(outer())
    (row,) = app.store.drains(1)
    report = DrainReport.of(row)
    assert done == ["odd", "first"]
    assert "odd" in report.cleanup[0].error


def test_a_hung_lifespan_is_cancelled():
    @asynccontextmanager
    async def hanging(_):
        yield
        await asyncio.sleep(1e6)

    report, seconds = left(App(lifespan=hanging), hook("first"), grace=10)
    assert "took longer" in report.cleanup[-1].error
    assert seconds < 10
