"""Talk to a model that costs money: `talk.py FOLDER [TURN]`.

Each turn is printed once it is paid for. At TURN the model never answers, so the test can kill the process
after the payment and before the record.
"""

import asyncio
import sys

from outlast import current, run, step, workflow

folder, *hang_at = sys.argv[1:]
TURNS = 6


@step
async def model(turn: int) -> int:
    current().cost(tokens=100, usd=0.1)
    print(turn, flush=True)
    if hang_at == [str(turn)]:
        await asyncio.Event().wait()
    return turn


@step
async def research(turn: int) -> int:
    current().cost(searches=1)
    return await model(turn) + await model(turn + 1)


@workflow(name="talk")
async def talk() -> int:
    return sum([await research(turn) for turn in range(0, TURNS, 2)])


if __name__ == "__main__":
    print(
        "result",
        run(
            talk(),
            id="talk",
            store=f"sqlite:///{folder}/outlast.db",
            death_backoff=0.01,
            heartbeat=0.1,
        ),
        flush=True,
    )
