"""What the workers of these tests execute. A step waits until the file GATE/<its name> is there."""

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from outlast import Outlast, current, effect, step, workflow

GATE = Path(os.environ["GATE"])


@step
async def pay(tokens: int) -> int:
    current().cost(tokens=tokens)
    return tokens


@effect(timeout=5)
async def book(what: str) -> str:
    return f"booked {what}"


@book.compensate
async def unbook(booked: str) -> None:
    return None


@step
async def wait(name: str) -> str:
    GATE.joinpath(f"{name}-waits-in-{os.getpid()}").touch()
    while not GATE.joinpath(name).exists():
        await asyncio.sleep(0.01)
    return name


@workflow
async def journey() -> str:
    await pay(100)
    await book("a room")
    await wait("first")
    return await wait("second")


async def handle(item) -> None:
    GATE.joinpath(f"item-{item.payload}").touch()


@asynccontextmanager
async def consuming(app):
    consumer = asyncio.ensure_future(app.queue("mail").consume(handle))
    try:
        yield
    finally:
        consumer.cancel()
        with suppress(asyncio.CancelledError):
            await consumer


app = Outlast(lifespan=consuming)
