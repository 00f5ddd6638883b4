"""A chat agent that remembers its user and their conversation, over restarts and between replicas.

python examples/chat.py serve &                        # a replica: start as many as you like, kill any of them
python examples/chat.py say ada "my name is Ada"
python examples/chat.py say ada "what is my name?"     # whichever replica answers
outlast sessions chat:ada

Each message is a run. What is kept of the conversation is a session: a replica that dies in the middle of an answer is followed by another,
which has the same history before it, and no turn is there twice.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

from outlast import Outlast, session, step, workflow

MONTH = 30 * 86_400.0  # seconds that a conversation is kept after the last word


@dataclass
class Turn:
    who: str
    text: str


@step(retries=3)
async def think(said: str, name: str | None, history: list[Turn]) -> str:
    """The model. A real one gets the same: the last turns, and what is known of the user."""
    print(f"{os.getpid()} thinks about: {said}", flush=True)
    await asyncio.sleep(0.5)
    if "my name?" in said:
        return f"Your name is {name}." if name else "You have not told me."
    if "say first?" in said:
        return f"You said: {next(turn.text for turn in history if turn.who == 'user')}"
    return f"Hello {name or 'stranger'}, that makes {len(history)} turns."


@workflow
async def answer(user: str, said: str) -> str:
    chat = session(f"chat:{user}", ttl=MONTH)
    if said.startswith("my name is "):
        await chat.set("name", said.removeprefix("my name is "))
    await chat.append("turns", Turn("user", said), keep=200)
    history = await chat.last("turns", 20, type=Turn)
    text = await think(said, await chat.get("name", type=str), history)
    await chat.append("turns", Turn("agent", text), keep=200)
    return text


async def serve() -> None:
    async with Outlast(worker=True, workflows=[answer]) as app:
        print(f"{os.getpid()} serves", flush=True)
        await app.wait_drain()  # until SIGTERM


async def say(user: str, said: str, message_id: str | None = None) -> None:
    """A web server would do the same, with the message's own id: then a request that is repeated is answered once."""
    async with Outlast() as app:
        run = await app.submit(answer(user, said), id=message_id)
        print(await run.result(timeout=60))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["say"]:
        asyncio.run(say(*sys.argv[2:]))
    else:
        sys.exit(__doc__)
