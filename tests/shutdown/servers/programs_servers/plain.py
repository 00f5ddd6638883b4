"""plain.py HOW: an Outlast in a program with an event loop and no server. LOOP is asyncio or uvloop."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from said import (
    cleanup,
    handlers,
    is_armed,
    leftovers,
    living,
    one,
    say,
    two,
    two_in_thread,
    wakeup_fd,
)

from outlast import Outlast

how = sys.argv[1]
logging.basicConfig(level=logging.INFO)


def opened(**settings) -> Outlast:
    app = Outlast(lifespan=living, **settings)
    app.on_cleanup(cleanup)
    return app


async def waits() -> None:
    """Wait for something that does not end."""
    async with opened() as app:
        await app.start(two("gate"), id="run")
        say("ready")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as cancelled:
            say("cancelled", *cancelled.args)
            raise
    say("left")


async def result() -> None:
    """Wait for a run's result."""
    async with opened() as app:
        run = await app.start(two("gate"), id="run")
        say("ready")
        await run.result()
    say("left")


async def catches() -> None:
    """Catch KeyboardInterrupt: see the end of this file."""
    await waits()


async def hung() -> None:
    async with opened() as app:
        await app.start(two_in_thread("never"), id="run")
        say("ready")
        await asyncio.sleep(3600)


async def own_handler() -> None:
    """Have a handler of its own."""
    calm = asyncio.Event()
    loop = asyncio.get_running_loop()

    def own(number, frame) -> None:
        say("own", signal.Signals(number).name)
        if number == signal.SIGUSR1:
            loop.call_soon_threadsafe(calm.set)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, own)
    app = opened()
    async with app:
        await app.start(two("gate"), id="run")
        say("ready")
        say("drain", await app.wait_drain())
        await calm.wait()
        say("still", app.draining, is_armed())
        if os.environ.get("AND_ON"):
            await asyncio.sleep(3600)
    say("restored", signal.getsignal(signal.SIGTERM) is own)


async def drains_itself() -> None:
    """Drain, and live on; then a signal comes."""
    app = opened()
    async with app:
        await app.start(one(""), id="run")
        report = await app.drain("the program wants it", grace=0.2)
        say("drained", report.reason)
        while app._shutdown.state.seconds_left > 0:
            await asyncio.sleep(0.01)
        if os.environ.get("AND_LEAVES"):
            return
        say("ready")
        await asyncio.sleep(3600)


async def by_hand() -> None:
    """Enter it in a task that ends before."""
    app = opened()
    await asyncio.create_task(app.__aenter__())
    await app.start(two("gate"), id="run")
    say("ready")
    await asyncio.sleep(3600)


async def closing() -> None:
    """Leave the block until a signal comes."""
    app = opened(close_timeout=100)

    async def slowly() -> None:
        say("ready")
        await app.wait_drain()
        await asyncio.sleep(0.1)
        say("slow-cleanup")

    app.on_cleanup(slowly)
    async with app:
        pass
    say("left")


async def no_signals() -> None:
    before = handlers(), wakeup_fd()
    async with opened(signals=0):
        say("same", (handlers(), wakeup_fd()) == before)
        say("ready")
        await asyncio.sleep(3600)


async def two_of_them() -> None:
    first, second = opened(), opened(store="sqlite:///other.db")
    before = handlers(), wakeup_fd()
    async with first:
        async with second:
            await first.start(two("gate"), id="run")
            await second.start(two("other-gate"), id="run")
            say("ready")
            if not os.environ.get("AND_LEAVES"):
                await asyncio.sleep(3600)
        say("draining", first.draining)
    say("restored", (handlers(), wakeup_fd()) == before)


async def many_times() -> None:
    before = handlers(), wakeup_fd()
    for number in range(8):
        async with Outlast(http="127.0.0.1:0" if number % 3 == 0 else "") as app:
            assert await (await app.start(one(""), id=f"run-{number}")).result() == "first"
        if number == 3:
            await settle()
            known = leftovers()
    await settle()
    say("threads", known[0] == leftovers()[0], *leftovers()[0])
    say("open", known[1] == leftovers()[1], known[1], leftovers()[1])
    say("restored", (handlers(), wakeup_fd()) == before)
    say("ready")


async def settle() -> None:
    """Wait until the threads and descriptors of Outlast are gone."""
    for _ in range(1000):
        if not any(name.startswith("outlast") for name in leftovers()[0]):
            return
        await asyncio.sleep(0.05)


async def in_thread() -> None:
    async with opened() as app:
        run = await app.start(two("gate"), id="run")
        say("same", handlers() == main_handlers)
        say("ready")
        report = await app.drain("asked in a thread")
        say("drained", report.reason, report.released, (await run.info()).status)


def sleeps(method: str) -> None:
    say("sleeps", method)
    time.sleep(3600)


async def forks() -> None:
    """Start children of all kinds, end each by a signal, and see that none drains its parent."""
    import multiprocessing

    app = opened()
    async with app:
        await app.start(two("gate"), id="run")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            say("child", *handlers())
            os.write(writing, b".")
            time.sleep(3600)
        await asyncio.to_thread(os.read, reading, 1)
        os.kill(pid, signal.SIGTERM)
        say("forked", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        for method in ("fork", "spawn", "forkserver"):
            child = multiprocessing.get_context(method).Process(target=sleeps, args=(method,))
            child.start()
            while f"sleeps {method}\n" not in Path(os.environ["WORDS"]).read_text():
                await asyncio.sleep(0.01)
            child.terminate()
            await asyncio.to_thread(child.join)
            say(method, child.exitcode)
        say("draining", app.draining)
        say("ready")
        await asyncio.sleep(3600)


def run(coro) -> None:
    if os.environ.get("LOOP") == "uvloop":
        import uvloop

        uvloop.run(coro)
    else:
        asyncio.run(coro)


main_handlers = handlers()
programs = {
    "waits": waits, "result": result, "hung": hung, "own-handler": own_handler, "drains-itself": drains_itself,
    "by-hand": by_hand, "closing": closing, "no-signals": no_signals, "two": two_of_them, "many-times": many_times,
    "in-thread": in_thread, "forks": forks, "catches": catches,
}  # fmt: skip
if __name__ == "__main__":
    if how == "in-thread":
        thread = threading.Thread(target=run, args=(in_thread(),))
        thread.start()
        thread.join()
        say("restored", handlers() == main_handlers)
    elif how == "catches":
        try:
            run(waits())
        except KeyboardInterrupt:
            say("caught", handlers() == main_handlers, is_armed())
    else:
        run(programs[how]())
