"""Research a topic with a model that chooses what to look up, and send a report to the reader.

This is the program that `outlast demo` stops and kills. Nothing in it is about stopping or killing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing

from outlast import KEY, Happened, current, effect, receive, resume_stream, step, workflow
from outlast.tools.demo.http_client import post, stream

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:8765")
OUTBOX = os.environ.get("OUTBOX_URL", "http://127.0.0.1:8766")


@step(retries=3, timeout=60)
async def think(topic: str, notes: list[str]) -> str:
    """Ask the model what to look up next. Empty means that it knows enough."""
    answer = await post(f"{MODEL}/think", topic=topic, notes=notes)
    current().cost(tokens=answer["tokens"])
    return str(answer["search"])


@step(retries=3, timeout=60)
async def search(question: str) -> str:
    """Search: the agent's tool."""
    return str(await post(f"{MODEL}/search", question=question))


@step(retries=3)
async def write(topic: str, notes: list[str]) -> str:
    """Stream the report. What has arrived is saved, so the next execution continues from there."""
    async with resume_stream(tokens, topic, notes, by="cursor", stall=60) as answer:
        report = await answer.read()
    current().cost(tokens=len(report.split()))
    return report


async def tokens(
    cursor: str | None, topic: str, notes: list[str]
) -> AsyncIterator[tuple[str, str]]:
    """Stream the model's answer after `cursor`: each token with its number."""
    words = stream(f"{MODEL}/answer", topic=topic, notes=notes, after=cursor)
    async with aclosing(words):
        async for word, number in words:
            yield word, number


@effect(timeout=10)
async def send(to: str, text: str, *, key: str = KEY) -> int:
    """Send a message that must not arrive twice. Every execution of the run has the same key."""
    return int(await post(f"{OUTBOX}/send", to=to, text=text, key=key))


@send.verify
async def was_sent(*, key: str = KEY) -> Happened[int] | None:
    """Return the message's number if it was sent. Called after a death in between."""
    number = await post(f"{OUTBOX}/sent", key=key)
    return None if number is None else Happened(int(number))


@workflow
async def research(topic: str, ask_first: bool = False) -> str:
    await send("reader", f"I am looking into {topic}.")
    if ask_first:
        await send("editor", f"May I spend tokens on {topic}?")
        # This may take a day. No worker holds the run meanwhile.
        if not await receive("approved", bool):
            return "not approved"
    notes: list[str] = []
    while question := await think(topic, notes):
        notes.append(await search(question))
    report = await write(topic, notes)
    await send("reader", report)
    return report
