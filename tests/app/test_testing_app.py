"""`outlast.testing.App` on a loop that is not its clock's, as an async test has one."""

import asyncio
import threading
import time
from asyncio import SelectorEventLoop

import pytest

from outlast import effect, receive, sleep, step, sync, workflow
from outlast.testing import App, VirtualClock, crash_everywhere
from outlast.testing.clock import VirtualLoop

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
    return [await run.result(timeout=10) for run in runs]


def test_what_waits_in_an_async_test_takes_its_time_and_ends():
    async def main() -> list[str]:
        async with App() as app:
            app.stub(work, returns="stubbed")
            return await both(app)

    assert asyncio.run(main()) == ["stubbed", "in vain"]


def test_its_clock_goes_on_from_where_it_was_and_jumps_again_after_it():
    clock = VirtualClock()
    app = App(clock=clock)
    began = clock()
    assert app.run(sleeps(3600)) == "worked"

    async def main() -> list[str]:
        async with app:
            clock.advance(60)
            return await both(app)

    assert asyncio.run(main()) == ["worked", "in vain"]
    assert 3660 + SHORT <= clock() - began < 3700
    assert app.run(sleeps(3600)) == "worked"
    assert clock() - began > 7260


def test_the_clock_stands_still_until_the_thread_of_a_sync_workflow_that_was_told_to_leave_has_ended(
    monkeypatch,
):
    begun, posts = threading.Event(), []

    def post_and_dawdle(loop, callback, *args):
        SelectorEventLoop.call_soon_threadsafe(loop, callback, *args)
        if threading.current_thread().name == "outlast-run":  # as one that gets no turn on a busy machine
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


def test_a_stub_may_be_a_function_of_the_arguments_as_for_a_model_that_is_asked_in_a_loop():
    app = App()
    app.stub(ask, calls=model)
    app.stub(look_up, calls=str.upper)
    assert app.run(agent()) == ANSWERED


def test_a_crash_everywhere_takes_stubs_of_steps():
    report = crash_everywhere(agent(), stubs={ask: model, look_up: str.upper})
    assert (report.result, report.error) == (ANSWERED, None)
    assert report.crashes > 10


def test_a_crash_everywhere_takes_no_stub_of_an_effect():
    @effect(timeout=1, undo=None)
    async def pay(cents: int) -> None: ...

    with pytest.raises(TypeError, match="as it is"):
        crash_everywhere(agent(), stubs={pay: model})


@pytest.mark.parametrize("given", [{}, {"returns": "a", "calls": model}, {"calls": 1}])
def test_a_stub_is_one_thing_of_three(given):
    with pytest.raises(TypeError, match=r"stub\("):
        App().stub(ask, **given)
