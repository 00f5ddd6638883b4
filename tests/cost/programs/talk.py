"""A conversation with a model that costs: `talk.py FOLDER`. It says on stdout which turn it has paid for, before it is recorded."""

import asyncio
import sys

from outlast import current, run, step, workflow

folder = sys.argv[1]
TURNS = 6


@step
async def model(turn: int) -> int:
    current().cost(tokens=100, usd=0.1)
    print(turn, flush=True)
    await asyncio.sleep(0.1)
    return turn


@step
async def research(turn: int) -> int:
    current().cost(searches=1)
    return await model(turn) + await model(turn + 1)


@workflow(name="talk")
async def talk() -> int:
    return sum([await research(turn) for turn in range(0, TURNS, 2)])


if __name__ == "__main__":
    print("result", run(talk(), id="talk", store=f"sqlite:///{folder}/outlast.db"), flush=True)
