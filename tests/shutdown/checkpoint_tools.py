"""Steps that take long, and drains that tell them to stop."""

import asyncio

from outlast import step, workflow
from outlast.api.context import progress

seen: list = []

GRACE = 30.0

TOLD = GRACE - 3 - 2.3
"""Wait until steps are asked to stop."""

OVER = GRACE - 2.3
"""When they must have."""


def drained(world, *calls, after: float = 1.0, grace: float = GRACE, durations=()):
    """Start runs (run, run-1, ...), drain a moment later: the report, and how long it took."""

    async def main(app):
        for workflow_name, step_name, values in durations:
            for value in values:
                app._open.services.steps.durations.add(workflow_name, step_name, value)
        for number, call in enumerate(calls):
            await app.start(call, id=f"run-{number}" if number else "run")
        await asyncio.sleep(after)
        began = app.clock()
        report = await app.drain("test", grace=grace)
        return report, app.clock() - began

    return world.do(main)


@step(name="long")
async def long(seconds: float = 1000.0) -> str:
    began = asyncio.get_running_loop().time()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as cancelled:
        seen.append(("cancelled", asyncio.get_running_loop().time() - began, str(cancelled)))
        raise
    return "end"


@workflow(name="lengthy")
async def lengthy(seconds: float = 1000.0) -> str:
    return await long(seconds)


@step(name="saving")
async def saving(seconds: float = 1000.0) -> str:
    async with progress(int) as p:
        seen.append(("from", p.value))
        try:
            for number in range((p.value or 0), int(seconds)):
                p.save(number)
                await asyncio.sleep(1)
        except asyncio.CancelledError as cancelled:
            seen.append(("cancelled", str(cancelled)))
            raise
        return "end"


@workflow(name="saver")
async def saver(seconds: float = 1000.0) -> str:
    return await saving(seconds)
