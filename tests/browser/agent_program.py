"""The program of the journeys. Files in its folder say when it goes on and when a worker dies."""

import asyncio
import os
import signal
from pathlib import Path

from outlast import current, effect, publish, receive, step, workflow

WORDS = [f"Sentence {number} about {{}}. " for number in range(40)]


@step(retries=3, backoff=0.2)
async def search(topic: str, source: str) -> dict:
    await asyncio.sleep(0.2 + len(source) / 20)
    current().cost(tokens=1200, usd=0.004)
    if source == "news" and current().attempt == 1:
        raise TimeoutError(f"{source} did not answer")
    return {"source": source, "hits": [f"{topic} {number}" for number in range(3)]}


@step
async def write(topic: str, found: list) -> str:
    text = ""
    async with publish("answer") as out:
        for number, word in enumerate(WORDS):
            while number == 20 and not Path(f"continue-{topic}").exists():
                await asyncio.sleep(0.05)
            await out.write(word.format(topic))
            text += word.format(topic)
            await asyncio.sleep(0.02)
    current().cost(tokens=9000, usd=0.05)
    return text


@effect(timeout=2, undo=None)
async def charge(customer: str, cents: int) -> str:
    await asyncio.sleep(0.3)
    if Path("worker-dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return f"receipt for {cents}"


@step
async def check(text: str) -> bool:
    await asyncio.sleep(0.2)
    return bool(text)


@workflow
async def review(text: str) -> bool:
    return await check(text)


@workflow
async def report(topic: str) -> str:
    """Research a topic, write about it, and charge for it."""
    sources = ("web", "news", "papers", "archive")
    found = await asyncio.gather(*(search(topic, source) for source in sources))
    text = await write(topic, found)
    await review(text[:40])
    await charge("ann", 1200)
    return text


@workflow
async def approval(question: str) -> str:
    return f"{question} {await receive('decision', bool)}"
