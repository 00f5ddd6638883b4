"""What goes wrong for the alerts' tests: runs that are held, parked, dead, and stuck in their undoing."""

import asyncio
import os

from outlast import current, effect, step, workflow


@step
async def long() -> None:
    await asyncio.sleep(600)


@step
async def quick() -> None: ...


@workflow
async def hold(number: int) -> None:
    await (
        quick()
    )  # one that has died twice and recorded nothing would be a suspect, and execute alone
    await long()


@step
async def bit() -> None:
    await asyncio.sleep(0.3)


@workflow
async def grind(number: int) -> None:
    """Record something in each life, so that the run is never a suspect."""
    for _ in range(2000):
        await bit()


@step
async def costly() -> None:
    current().cost(tokens=100)


@workflow
async def spend() -> None:
    await costly()
    await long()


@effect(timeout=0.05)
async def hangs() -> None:
    await asyncio.sleep(600)


@workflow
async def park() -> None:
    await hangs()


@step
async def kill() -> None:
    os._exit(9)


@workflow
async def poison() -> None:
    await kill()


@effect(timeout=5)
async def book() -> str:
    return "booked"


@book.compensate
async def unbook(receipt: str) -> None:
    raise RuntimeError("the hotel does not answer")


@workflow
async def stuck() -> None:
    await book()
    raise ValueError("it fails")
