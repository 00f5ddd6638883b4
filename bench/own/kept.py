"""What the cases `worker` and `server` execute. Nothing is imported here but Outlast: the memory of a worker that does so is measured."""

from __future__ import annotations

import asyncio

from outlast import step, workflow

VALUE = "x" * 98
"""100 bytes as JSON."""


@step
async def write(number: int) -> str:  # noqa: ARG001
    return VALUE


@step
async def stay() -> None:
    await asyncio.Event().wait()


@workflow
async def written(steps: int) -> int:
    for number in range(steps):
        await write(number)
    return steps


@workflow
async def held(steps: int) -> None:
    """Then it stays in its worker's hands."""
    for number in range(steps):
        await write(number)
    await stay()
