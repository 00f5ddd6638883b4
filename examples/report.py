"""A durable program in twenty lines. Kill it anywhere, start it again: it goes on from its last recorded step.

python examples/report.py
"""

import asyncio

from outlast import run, step, workflow


@step(retries=3)
async def research(topic: str, part: int) -> str:
    print(f"researching {topic}, part {part}", flush=True)
    await asyncio.sleep(0.5)  # a model, a search, anything slow
    return f"{topic}: finding {part}"


@workflow
async def report(topic: str) -> str:
    first, second = await asyncio.gather(research(topic, 1), research(topic, 2))
    rest = [await research(topic, part) for part in (3, 4, 5)]
    return "\n".join([first, second, *rest])


if __name__ == "__main__":
    print(run(report("tides"), id="report-1"))
