"""Read the metrics of an app, and a workflow that the tests count."""

import asyncio

from outlast import current, step, workflow


@step
async def inner(text: str) -> str:
    await asyncio.sleep(0.2)
    return text


@step
async def plain(text: str) -> str:
    current().cost(tokens=100)
    await asyncio.sleep(1)
    return await inner(text)


@workflow
async def child() -> str:
    return await plain("child")


def numbers(app, name: str) -> dict[tuple[str, ...], float]:
    """Of a counter or a gauge by its labels' values; of a histogram how many there were."""
    return {
        tuple(one.labels.values()): one.buckets[-1][1] if one.kind == "histogram" else one.value
        for one in app.status_provider.samples()
        if one.name == name
    }
