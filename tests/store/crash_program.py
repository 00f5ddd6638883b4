"""A run of short steps, a child, items and a session, for processes that kill themselves."""

import asyncio

from outlast import current, map, session, sleep, step, workflow  # noqa: A004


@step(retries=2, backoff=0.01)
async def work(label: str) -> str:
    if label == "flaky" and current().attempt == 1:
        raise OSError("once")
    return label.upper()


@workflow
async def child(label: str) -> str:
    said = await work(label)
    await session("s").append("said", said)
    return said


async def double(n: int) -> int:
    return 2 * n


@workflow
async def small(label: str) -> list:
    first = await work(label)
    await session("s").append("said", first)
    await sleep(0.01)
    rest = await asyncio.gather(work("flaky"), child("c"))
    return [first, *rest, await map(double, [1, 2]), await session("s").last("said", 9)]
