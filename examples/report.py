"""A durable program in fifteen lines. Kill it anywhere, start it again: it goes on from its last recorded step.

python examples/report.py       # after a few lines: kill -9 it, or Ctrl-C; then the same command again
outlast show report-1

Installs: outlast. The run is kept in outlast.db under its id: once it is done, the same command prints its result at once. Take another
id, or `rm -r outlast.db*`, to see it work again.
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
    print(run(report(10), id="report-1"))  # kill -9 it, start it again
