"""Define workflows of a user, as `outlast chaos MODULE` is given them."""

import asyncio

from outlast import KEY, effect, step, workflow


@step
async def read(topic: str) -> str:
    await asyncio.sleep(0.05)
    return topic.upper()


@effect(timeout=5, idempotent=True, undo=None)
async def publish(text: str, key: str = KEY) -> str:
    return text


@workflow
async def report(topic: str, times: int = 1) -> str:
    for _ in range(times):
        await read(topic)
    return await publish(topic)
