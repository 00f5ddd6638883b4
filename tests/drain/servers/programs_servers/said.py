"""What the programs share: words, and a workflow. A word is one write, so that lines of several threads stay whole."""

import asyncio
import os
import signal
import socket
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

from outlast import step, workflow


def say(*words: object) -> None:
    line = (" ".join(map(str, words)) + "\n").encode()
    handle = os.open(os.environ["WORDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@step
async def first(seconds: float) -> str:
    say("first-begins")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        say("first-cancelled")
        raise
    say("first-ends")
    return "first"


@step
def first_in_thread(seconds: float) -> str:
    say("first-begins")
    time.sleep(seconds)
    say("first-ends")
    return "first"


@step
async def second() -> str:
    say("second-begins")
    return "second"


@workflow
async def two(seconds: float) -> list[str]:
    return [await first(seconds), await second()]


@workflow
async def two_in_thread(seconds: float) -> list[str]:
    return [await first_in_thread.aio(seconds), await second()]


@workflow
async def one(seconds: float) -> str:
    return await first(seconds)


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
    """The current one, left as it is."""
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    return fd


def leftovers() -> tuple[list[str], int]:
    """Threads and open descriptors."""
    names = sorted(thread.name for thread in threading.enumerate())
    return names, len(list(Path("/proc/self/fd").iterdir()))
