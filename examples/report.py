"""Survive kill -9 with a durable program of fifteen lines.

python examples/report.py       # kill -9 it or press Ctrl-C, then run the same command again
outlast show report-1

Installs: outlast. The run is stored in outlast.db under its id. Once it is done, the same command
prints its result at once. To run it again, use another id or `rm -r outlast.db*`.
"""

import asyncio

from outlast import run, step, workflow


@step
async def research(part: int) -> str:
    print("researching part", part, flush=True)
    await asyncio.sleep(1)  # a model, a search, anything slow
    return f"finding {part}"


@workflow
async def report(parts: int) -> list[str]:
    return [await research(part) for part in range(1, parts + 1)]


if __name__ == "__main__":
    print(run(report(10), id="report-1"))  # kill -9 it, then start it again
