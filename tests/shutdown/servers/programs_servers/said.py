"""Words and workflows of the programs. A word is one write, so that lines of several threads stay whole."""

import asyncio
import os
import signal
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import passing_grace  # noqa: F401 - a clock for the drain, where a test wants it

from outlast import step, workflow


def say(*words: object) -> None:
    line = (" ".join(map(str, words)) + "\n").encode()
    handle = os.open(os.environ["WORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)


async def pass_gate(gate: str) -> None:
    """Wait until there is a file of this name; without a name do not wait."""
    while gate and not Path(gate).exists():
        await asyncio.sleep(0.02)


@step
async def first(gate: str) -> str:
    say("first-begins")
    try:
        await pass_gate(gate)
    except asyncio.CancelledError:
        say("first-cancelled")
        raise
    say("first-ends")
    return "first"


@step
def first_in_thread(gate: str) -> str:
    say("first-begins")
    while not Path(gate).exists():
        time.sleep(0.02)
    say("first-ends")
    return "first"


@step
async def second() -> str:
    say("second-begins")
    return "second"


@workflow
async def two(gate: str) -> list[str]:
    return [await first(gate), await second()]


@workflow
async def two_in_thread(gate: str) -> list[str]:
    return [await first_in_thread.aio(gate), await second()]


@workflow
async def one(gate: str) -> str:
    return await first(gate)


@asynccontextmanager
async def living(app):
    say("lifespan-begins")
    try:
        yield
    finally:
        say("lifespan-ends")


def cleanup() -> None:
    say("cleanup")


def handlers() -> list[str]:
    return [_name(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]


def _name(handler) -> str:
    handler = getattr(handler, "func", handler)
    return getattr(handler, "__qualname__", None) or getattr(handler, "name", str(handler))


def wakeup_fd() -> int:
    """Return the current one and leave it as it is."""
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


def is_armed() -> bool:
    """Return whether a timer would end this process."""
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def leftovers() -> tuple[list[str], int]:
    """Return the names of the threads and the number of open descriptors."""
    names = sorted(thread.name for thread in threading.enumerate())
    return names, len(list(Path("/proc/self/fd").iterdir()))
