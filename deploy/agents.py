"""What the image of this folder executes: put your own workflows here.

outlast submit agents.py:report tides      (with OUTLAST_STORE as the workers have it)
"""

import asyncio

from outlast import step, workflow


@step(retries=3)
async def research(topic: str, part: int) -> str:
    await asyncio.sleep(1)  # a model, a search, anything slow
    return f"{topic}: finding {part}"


@workflow
async def report(topic: str) -> str:
    return "\n".join([await research(topic, part) for part in range(10)])
