"""Run a chat agent that remembers its user across restarts and replicas.

python examples/chat.py serve &                        # a replica: start several, kill any of them
python examples/chat.py say ada "my name is Ada"
python examples/chat.py say ada "what is my name?"     # any replica answers
outlast sessions chat:ada

Installs: outlast. Each message is a run, and the conversation is a session. If a replica is killed
in the middle of an answer (kill -9 or SIGTERM), another one continues from the words received so
far, with the same history. No turn is recorded twice.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from outlast import Outlast, resume_stream, session, step, workflow

MONTH = 30 * 86_400.0  # seconds that a conversation is kept after its last use


@dataclass
class Turn:
    who: str
    text: str


async def model(so_far: str, prompt: str, name: str | None) -> AsyncIterator[str]:
    """Answer word by word, continuing from a text. A real model takes the same arguments."""
    first, last = prompt.splitlines()[0], prompt.splitlines()[-1]
    if "my name?" in last:
        answer = f"As far as I remember, your name is {name}." if name else "You have not told me."
    elif "say first?" in last:
        answer = f"The first thing you said was: {first.removeprefix('user: ')}"
    else:
        answer = f"Hello {name or 'stranger'}, this is turn {len(prompt.splitlines())}."
    for word in answer.split()[len(so_far.split()) :]:
        await asyncio.sleep(0.15)
        yield f"{word} "


@step(retries=3)
async def think(history: list[Turn], name: str | None) -> str:
    print(f"{os.getpid()} thinks about: {history[-1].text}", flush=True)
    prompt = "\n".join(f"{turn.who}: {turn.text}" for turn in history)
    async with resume_stream(model, prompt, name, by="prefill", stall=10) as answer:
        async for word in answer:  # forward it to a browser here
            print(f"{os.getpid()} says: {word}", flush=True)
    return answer.text.strip()


@workflow
async def answer(user: str, message: str) -> str:
    chat = session(f"chat:{user}", ttl=MONTH)
    if message.startswith("my name is "):
        await chat.set("name", message.removeprefix("my name is "))
    await chat.append("turns", Turn("user", message), keep=200)
    text = await think(await chat.last("turns", 20, type=Turn), await chat.get("name", type=str))
    await chat.append("turns", Turn("agent", text), keep=200)
    return text


async def serve() -> None:
    async with Outlast(worker=True, workflows=[answer]) as app:
        print(f"{os.getpid()} serves", flush=True)
        await app.wait_drain()  # until SIGTERM


async def say(user: str, message: str, message_id: str | None = None) -> None:
    """Submit a message. With the message's own id, a repeated request gets the same answer."""
    async with Outlast() as app:
        run = await app.submit(answer(user, message), id=message_id)
        print(await run.result(timeout=60))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["say"]:
        asyncio.run(say(*sys.argv[2:]))
    else:
        sys.exit(__doc__)
