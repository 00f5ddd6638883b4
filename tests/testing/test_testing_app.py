"""`outlast.testing.App` in async tests, its clock and its stubs."""

import asyncio
import threading
import time
from asyncio import SelectorEventLoop

import anyio
import pytest

from outlast import Happened, effect, receive, sleep, step, sync, workflow
from outlast.testing import App, VirtualClock, crash_everywhere
from outlast.testing.clock import VirtualLoop
from support.waiting import WAIT_SECONDS

SHORT = 0.05


@step
async def work() -> str:
    return "worked"


@workflow
async def sleeps(seconds: float) -> str:
    await sleep(seconds)
    return await work()


@workflow
async def waits() -> str:
    try:
        return await receive("never", str, timeout=SHORT)
    except TimeoutError:
        return "in vain"


async def both(app: App) -> list[str]:
    runs = [await app.start(sleeps(SHORT)), await app.start(waits())]
    return [await run.result(timeout=WAIT_SECONDS) for run in runs]


def test_waits_in_an_async_test_take_real_time():
    async def main() -> list[str]:
        async with App() as app:
            app.stub(work, returns="stubbed")
            return await both(app)

    assert asyncio.run(main()) == ["stubbed", "in vain"]


def test_virtual_clock_continues_after_an_async_test():
    clock = VirtualClock()
    app = App(clock=clock)
    began = clock()
    assert app.run(sleeps(3600)) == "worked"

    async def main() -> list[str]:
        async with app:
            clock.advance(60)
            return await both(app)

    assert asyncio.run(main()) == ["worked", "in vain"]
    assert 3660 + SHORT <= clock() - began < 7000
    assert app.run(sleeps(3600)) == "worked"
    assert clock() - began > 7260


def test_virtual_clock_waits_for_the_thread_of_an_evicted_sync_workflow(
    monkeypatch,
):
    begun, posts = threading.Event(), []

    def post_and_dawdle(loop, callback, *args):
        SelectorEventLoop.call_soon_threadsafe(loop, callback, *args)
        if (
            threading.current_thread().name == "outlast-run"
        ):  # as one that gets no turn on a busy machine
            posts.append(callback)
            time.sleep(SHORT)

    @sync.workflow
    def waits_long() -> None:
        begun.set()
        sync.sleep(3600)

    async def main(app: App) -> None:
        await app.start(waits_long(), id="run")
        while not begun.is_set():
            await asyncio.sleep(0)

    app = App()
    monkeypatch.setattr(VirtualLoop, "call_soon_threadsafe", post_and_dawdle)
    app.do(main)
    assert posts
    assert app.store.journal(app.store.run("run").pk)[-1].kind == "interruption"


@step
async def ask(history: list[str]) -> str:
    raise AssertionError("no model is asked in a test")


@step
def look_up(word: str) -> str:
    raise AssertionError("nor anything outside")


@workflow
async def agent() -> list[str]:
    history = ["question"]
    while (answer := await ask(history)) != "done":
        history += [answer, await look_up.aio(answer)]
    return history


async def model(history: list[str]) -> str:
    return "search" if len(history) == 1 else "done"


ANSWERED = ["question", "search", "SEARCH"]


def test_stub_can_be_a_function_of_the_arguments():
    app = App()
    app.stub(ask, calls=model)
    app.stub(look_up, calls=str.upper)
    assert app.run(agent()) == ANSWERED


def test_a_crash_everywhere_takes_stubs_of_steps():
    report = crash_everywhere(agent(), stubs={ask: model, look_up: str.upper})
    assert (report.result, report.error) == (ANSWERED, None)
    assert report.crashes > 10


def test_a_crash_everywhere_takes_stubs_of_effects():
    @effect(timeout=1)
    async def pay(cents: int) -> str:
        raise AssertionError("nothing is paid in a test")

    @pay.verify
    async def was_paid(cents: int) -> Happened[str] | None:
        raise AssertionError("nobody is asked in a test")

    @pay.compensate
    async def refund(receipt: str) -> None:
        raise AssertionError("nothing is refunded in a test")

    @workflow
    async def buy(fails: bool) -> str:
        receipt = await pay(7)
        if fails:
            raise ValueError("sold out")
        return receipt

    report = crash_everywhere(buy(fails=False), stubs={pay: lambda cents: f"paid {cents}"})
    assert (report.result, report.error) == ("paid 7", None)
    assert report.acts > 0
    undone = crash_everywhere(buy(fails=True), stubs={pay: lambda cents: f"paid {cents}"})
    assert undone.error == "ValueError: sold out"


@pytest.mark.parametrize("given", [{}, {"returns": "a", "calls": model}, {"calls": 1}])
def test_stub_takes_exactly_one_of_its_three_options(given):
    with pytest.raises(TypeError, match=r"stub\("):
        App().stub(ask, **given)


def test_time_stands_still_while_a_thread_of_a_step_works():
    @step(timeout=60)
    async def work() -> str:
        await asyncio.to_thread(time.sleep, 0.05)
        return "done"

    @workflow
    async def threaded() -> str:
        return await work()

    assert App().run(threaded()) == "done"


@step
async def in_a_thread_of_anyio() -> str:
    """Give the virtual clock every chance to jump before the thread ends."""
    return await anyio.to_thread.run_sync(lambda: time.sleep(SHORT) or "done")


@workflow
async def waits_for_a_thread() -> str:
    async with asyncio.timeout(60):
        return await in_a_thread_of_anyio()


def test_virtual_clock_waits_for_threads_of_anyio():
    assert App().run(waits_for_a_thread()) == "done"


def test_threads_of_anyio_end_with_a_crashed_process():
    before = set(threading.enumerate())
    assert crash_everywhere(waits_for_a_thread()).result == "done"
    for thread in set(threading.enumerate()) - before:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_closed_coroutines_of_a_crashed_process_do_not_complain(recwarn):
    async def never_started() -> None: ...

    @workflow
    async def one() -> str:
        task = asyncio.create_task(never_started())
        await work()
        return str(await task)

    assert crash_everywhere(one()).result == "None"
    assert not list(recwarn)
