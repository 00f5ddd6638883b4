"""What goes wrong for the alerts' tests: runs that are held, parked, dead, and stuck in their undoing."""

import asyncio
import os

from outlast import effect, step, workflow


@step
async def long() -> None:
    await asyncio.sleep(600)


@step
async def quick() -> None: ...


@workflow
async def hold(number: int) -> None:
    await quick()  # one that has recorded nothing would be a suspect, and execute alone
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
